"""Certificates of the webhook."""

from __future__ import annotations

import ssl
from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from cryptography import x509

from distributed_input_operator.webhook.certificates import (
    RENEWED_BEFORE,
    VALID,
    is_good,
    load,
    make,
    server_context,
    trusts,
)

NOW = datetime(2030, 1, 1, tzinfo=timezone.utc)
HOSTS = ["webhook.operators.svc"]
GOOD = make(HOSTS, NOW)


def test_a_new_certificate_is_good_until_it_is_due():
    assert is_good(GOOD, HOSTS, NOW)
    assert is_good(GOOD, HOSTS, NOW + VALID - RENEWED_BEFORE - timedelta(seconds=1))
    assert not is_good(GOOD, HOSTS, NOW + VALID - RENEWED_BEFORE)
    assert not is_good(GOOD, HOSTS, NOW - timedelta(days=1))


@pytest.mark.parametrize(
    "broken",
    [
        replace(GOOD, chain=b""),
        replace(GOOD, chain=b"-----BEGIN CERTIFICATE-----\nx"),
        replace(GOOD, key=b""),
        replace(GOOD, bundle=b""),
        replace(GOOD, key=make(HOSTS, NOW).key),
        replace(GOOD, bundle=make(HOSTS, NOW).bundle),
        replace(GOOD, chain=GOOD.bundle),
    ],
)
def test_what_does_not_belong_together_is_not_good(broken):
    assert not is_good(broken, HOSTS, NOW)


def test_a_certificate_for_other_hosts_is_not_good():
    assert not is_good(GOOD, ["other.operators.svc"], NOW)
    assert not is_good(GOOD, [*HOSTS, "other.operators.svc"], NOW)


def test_the_bundle_holds_the_authority_before_and_no_other():
    second = make(HOSTS, NOW + VALID / 2, GOOD)
    assert second.bundle.endswith(GOOD.bundle)
    assert trusts(second.bundle, GOOD)
    third = make(HOSTS, NOW + VALID * 3 / 4, second)
    assert len(x509.load_pem_x509_certificates(third.bundle)) == 2
    assert trusts(third.bundle, second)
    assert not trusts(third.bundle, GOOD)


def test_an_authority_that_has_ended_is_dropped():
    late = make(HOSTS, NOW + VALID + timedelta(days=1), GOOD)
    assert not trusts(late.bundle, GOOD)


def test_a_bundle_that_someone_broke_is_left_behind():
    assert is_good(make(HOSTS, NOW, replace(GOOD, bundle=b"broken")), HOSTS, NOW)


def test_the_authority_signs_and_does_not_serve():
    leaf = x509.load_pem_x509_certificate(GOOD.chain)
    authority = x509.load_pem_x509_certificate(GOOD.bundle)
    assert authority.subject == leaf.issuer
    assert authority.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert not leaf.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
    assert authority.public_key() != leaf.public_key()


def test_a_pair_that_does_not_fit_is_refused_and_the_last_one_stays():
    context = server_context()
    load(context, GOOD.chain, GOOD.key)
    with pytest.raises(ssl.SSLError):
        load(context, GOOD.chain, make(HOSTS, NOW).key)
    load(context, GOOD.chain, GOOD.key)
