"""Certificates of one input, from keys that only the operator can derive."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.identity import ROLES, SERVERS
from distributed_input_operator.certificates.authority import _ORDER, CLOCK_SKEW, derived_key
from testing.certificates import LIFE, authority, now

P256_ORDER = int("ffffffff00000000ffffffffffffffffbce6faada7179e84f3b9cac2fc632551", 16)


def leaf(role: str, uid: str = "u-1") -> x509.Certificate:
    return x509.load_pem_x509_certificate(authority(uid).issue(role, now(), LIFE).encode())


@given(st.binary(min_size=32, max_size=32), st.text(max_size=20), st.text(max_size=20))
def test_keys_are_derived_from_the_secret_and_the_purpose(
    master: bytes, one: str, other: str
) -> None:
    def number(secret: bytes, purpose: str) -> int:
        return derived_key(secret, purpose).private_numbers().private_value

    assert number(master, one) == number(master, one)
    assert (number(master, one) == number(master, other)) == (one == other)
    assert number(master, one) != number(bytes(32) if any(master) else bytes(31) + b"x", one)


def test_the_order_is_that_of_the_curve() -> None:
    assert _ORDER == P256_ORDER
    ec.derive_private_key(_ORDER - 1, ec.SECP256R1())


@pytest.mark.parametrize("role", ROLES)
def test_a_certificate_names_its_role_and_input(role: str) -> None:
    names = leaf(role).extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    uri = f"spiffe://distributed-input/ns/team/input/digits/uid/u-1/role/{role}"
    assert names.get_values_for_type(x509.UniformResourceIdentifier) == [uri]
    server = [f"{role}.u-1.distributed-input"] if role in SERVERS else []
    assert names.get_values_for_type(x509.DNSName) == server


@pytest.mark.parametrize("role", ROLES)
def test_only_servers_get_a_certificate_for_servers(role: str) -> None:
    usage = leaf(role).extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
    assert (ExtendedKeyUsageOID.SERVER_AUTH in usage) == (role in SERVERS)
    constraints = leaf(role).extensions.get_extension_for_class(x509.BasicConstraints).value
    assert not constraints.ca


def test_a_certificate_begins_before_now_because_clocks_differ() -> None:
    at = now().replace(microsecond=0)
    found = x509.load_pem_x509_certificate(authority().issue("worker", at, LIFE).encode())
    assert found.not_valid_before_utc == at - CLOCK_SKEW
    assert found.not_valid_after_utc == at + LIFE


def test_another_operator_with_the_same_key_continues() -> None:
    first, second = authority(), authority()
    chain = first.issue("worker", now(), LIFE)
    assert second.seconds_left(chain, "worker", now(), LIFE) > 0
    assert second.key("worker") == first.key("worker")


def test_a_certificate_is_due_after_two_thirds_of_its_life() -> None:
    one, at = authority(), now().replace(microsecond=0)
    chain = one.issue("worker", at, LIFE)
    assert one.seconds_left(chain, "worker", at, LIFE) == 2400
    assert one.seconds_left(chain, "worker", at + timedelta(seconds=2399), LIFE) == 1
    assert one.seconds_left(chain, "worker", at + timedelta(seconds=2400), LIFE) == 0


def test_a_shorter_life_is_a_reason_to_renew() -> None:
    one, at = authority(), now()
    chain = one.issue("worker", at, timedelta(days=1))
    assert one.seconds_left(chain, "worker", at, LIFE) == 0


@pytest.mark.parametrize(
    "chain",
    [
        "",
        "no PEM",
        authority("u-2").issue("worker", now(), LIFE),
        authority(master=32 * b"x").issue("worker", now(), LIFE),
        authority().issue("sidecar", now(), LIFE),
        authority(name="other").issue("worker", now(), LIFE),
    ],
)
def test_other_certificates_are_replaced(chain: str) -> None:
    assert authority().seconds_left(chain, "worker", now(), LIFE) == 0
