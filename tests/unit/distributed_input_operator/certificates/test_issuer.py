"""The Secret that cert-manager writes is checked before its authority signs."""

from __future__ import annotations

from datetime import timedelta

import pytest
from cryptography import x509
from hypothesis import given
from hypothesis import strategies as st

from distributed_input_operator.certificates.issuer import (
    MALFORMED,
    NOT_AUTHORITY,
    NOT_VALID,
    UnusableIssuer,
    parse,
)
from testing.certificates import authority, now
from testing.issuer import KINDS, YEAR, PlatformRoot, new_key

AT = now()
ROOT = PlatformRoot()
GOOD = ROOT.secret(AT)


def problem(fields: dict[str, bytes]) -> UnusableIssuer:
    with pytest.raises(UnusableIssuer) as caught:
        parse(fields, AT)
    return caught.value


@pytest.mark.parametrize("kind", KINDS)
def test_each_kind_of_key_that_cert_manager_makes_can_sign(kind: str) -> None:
    issuer = parse(ROOT.secret(AT, key=new_key(kind)), AT)
    signed = x509.load_pem_x509_certificate(authority().certificate_from(issuer, AT).encode())
    signed.verify_directly_issued_by(issuer.certificate)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"tls.crt": GOOD["tls.crt"]},
        {"tls.key": GOOD["tls.key"]},
        {**GOOD, "tls.crt": b""},
        {**GOOD, "tls.key": b"no PEM"},
        {**GOOD, "tls.key": ROOT.secret(AT)["tls.key"]},
    ],
)
def test_a_secret_that_cannot_be_used_is_malformed_and_the_remedy_is_to_delete_it(
    fields: dict[str, bytes],
) -> None:
    found = problem(fields)
    assert found.reason == MALFORMED
    assert "delete the Secret" in str(found)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_no_bytes_are_another_error(chain: bytes, key: bytes) -> None:
    for fields in ({"tls.crt": chain, "tls.key": key}, {**GOOD, "tls.key": key}):
        assert problem(fields).reason == MALFORMED


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        (ROOT.secret(AT, ca=False), "isCA: true"),
        (ROOT.secret(AT, path_length=0), "path length"),
        (ROOT.secret(AT, signs=False), "keyUsage"),
    ],
)
def test_what_may_not_sign_authorities_is_refused(fields: dict[str, bytes], text: str) -> None:
    found = problem(fields)
    assert found.reason == NOT_AUTHORITY
    assert text in str(found)
    assert "issuerRef" in str(found)


def test_a_path_length_of_1_suffices() -> None:
    parse(ROOT.secret(AT, path_length=1), AT)


@pytest.mark.parametrize(
    ("path_lengths", "text"),
    [((1, 1), "at least 2"), ((None, 2, 2), "at least 3"), ((1, 2), ""), ((None, None, 3), "")],
)
def test_each_certificate_of_the_chain_allows_those_below(path_lengths, text: str) -> None:
    """OpenSSL refuses the certificates of processes otherwise."""
    own, *above = (ROOT.secret(AT, path_length=one) for one in path_lengths)
    chain = {**own, "tls.crt": b"".join(one["tls.crt"] for one in (own, *above))}
    if not text:
        parse(chain, AT)
        return
    found = problem(chain)
    assert found.reason == NOT_AUTHORITY
    assert text in str(found)
    assert "CN=operator in its chain" in str(found)


@pytest.mark.parametrize("begin", [AT - 2 * YEAR, AT + timedelta(hours=1)])
def test_an_authority_that_is_not_valid_now_does_not_sign(begin) -> None:
    found = problem(ROOT.secret(begin))
    assert found.reason == NOT_VALID
    assert "cert-manager does not renew it" in str(found)


def test_an_authority_of_the_next_minute_may_sign_because_clocks_differ() -> None:
    parse(ROOT.secret(AT + timedelta(minutes=1)), AT)


def test_the_root_is_not_a_part_of_the_chain() -> None:
    """Who checks the chain has the root."""
    root = GOOD["ca.crt"]
    assert parse({**GOOD, "tls.crt": GOOD["tls.crt"] + root}, AT).chain == GOOD["tls.crt"].decode()


def test_the_key_is_not_in_its_text() -> None:
    assert "PrivateKey" not in repr(parse(GOOD, AT))
