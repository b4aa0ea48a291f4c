"""Generation and checks of the webhook's certificates."""

from __future__ import annotations

import base64
import ssl
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from distributed_input_operator.webhook.certificates import (
    RENEW_BEFORE,
    VALIDITY,
    generate,
    is_usable,
    load,
    server_context,
    trusts,
)

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
HOSTS = ["webhook.operators.svc"]
GOOD = generate(HOSTS, NOW)


def test_a_new_certificate_is_usable_until_it_is_due():
    assert is_usable(GOOD, HOSTS, NOW)
    assert is_usable(GOOD, HOSTS, NOW + VALIDITY - RENEW_BEFORE - timedelta(seconds=1))
    assert not is_usable(GOOD, HOSTS, NOW + VALIDITY - RENEW_BEFORE)
    assert not is_usable(GOOD, HOSTS, NOW - timedelta(days=1))


@pytest.mark.parametrize(
    "broken",
    [
        replace(GOOD, chain=b""),
        replace(GOOD, chain=b"-----BEGIN CERTIFICATE-----\nx"),
        replace(GOOD, key=b""),
        replace(GOOD, bundle=b""),
        replace(GOOD, key=generate(HOSTS, NOW).key),
        replace(GOOD, bundle=generate(HOSTS, NOW).bundle),
        replace(GOOD, chain=GOOD.bundle),
    ],
)
def test_a_certificate_with_foreign_or_broken_parts_is_not_usable(broken):
    assert not is_usable(broken, HOSTS, NOW)


def test_a_certificate_for_other_hosts_is_not_usable():
    assert not is_usable(GOOD, ["other.operators.svc"], NOW)
    assert not is_usable(GOOD, [*HOSTS, "other.operators.svc"], NOW)


def test_the_bundle_has_only_the_authority_of_the_previous_certificate():
    second = generate(HOSTS, NOW + VALIDITY / 2, GOOD)
    assert second.bundle.endswith(GOOD.bundle)
    assert trusts(second.bundle, GOOD)
    third = generate(HOSTS, NOW + VALIDITY * 3 / 4, second)
    assert len(x509.load_pem_x509_certificates(third.bundle)) == 2
    assert trusts(third.bundle, second)
    assert not trusts(third.bundle, GOOD)


def test_an_expired_authority_is_removed():
    late = generate(HOSTS, NOW + VALIDITY + timedelta(days=1), GOOD)
    assert not trusts(late.bundle, GOOD)


def test_a_broken_bundle_is_replaced():
    assert is_usable(generate(HOSTS, NOW, replace(GOOD, bundle=b"broken")), HOSTS, NOW)


def test_the_authority_signs_but_is_not_a_server_certificate():
    leaf = x509.load_pem_x509_certificate(GOOD.chain)
    authority = x509.load_pem_x509_certificate(GOOD.bundle)
    assert authority.subject == leaf.issuer
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.public_key() != leaf.public_key()


def test_a_certificate_that_does_not_fit_its_key_is_refused():
    context = server_context()
    load(context, GOOD.chain, GOOD.key)
    with pytest.raises(ssl.SSLError):
        load(context, GOOD.chain, generate(HOSTS, NOW).key)
    load(context, GOOD.chain, GOOD.key)


def test_a_bundle_of_an_unknown_version_is_not_trusted():
    made = generate(HOSTS, NOW)
    leaf = x509.load_pem_x509_certificates(made.chain)[0]
    encoded = leaf.public_bytes(serialization.Encoding.DER)
    version = bytes.fromhex("a003020102")  # 2 stands for version 3
    assert version in encoded
    changed = base64.b64encode(encoded.replace(version, version[:-1] + b"\x03"))
    bundle = b"-----BEGIN CERTIFICATE-----\n" + changed + b"\n-----END CERTIFICATE-----\n"
    assert trusts(made.bundle, made)
    assert not trusts(bundle, made)
