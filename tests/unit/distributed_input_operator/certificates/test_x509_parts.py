"""Parts of certificates."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec

from distributed_input_operator.certificates.x509_parts import builder, common_name, key_usage

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
END = BEGIN + timedelta(days=1)


def test_a_certificate_has_the_names_the_time_and_the_public_key():
    key = ec.generate_private_key(ec.SECP256R1())
    subject, issuer = common_name("worker"), common_name("authority")
    found = builder(subject, issuer, key, BEGIN, END).sign(key, hashes.SHA256())
    assert (found.subject, found.issuer) == (subject, issuer)
    assert (found.not_valid_before_utc, found.not_valid_after_utc) == (BEGIN, END)
    assert found.public_key() == key.public_key()


def test_certificates_have_different_serial_numbers():
    key, name = ec.generate_private_key(ec.SECP256R1()), common_name("worker")
    made = [builder(name, name, key, BEGIN, END).sign(key, hashes.SHA256()) for _ in range(2)]
    assert made[0].serial_number != made[1].serial_number


@pytest.mark.parametrize("signs", [False, True])
def test_a_key_signs_either_certificates_or_handshakes(signs: bool):
    found = key_usage(signs_certificates=signs)
    assert (found.key_cert_sign, found.digital_signature) == (signs, not signs)
    assert not found.key_encipherment
    assert not found.crl_sign
