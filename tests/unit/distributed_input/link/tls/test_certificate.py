"""A certificate is checked before it is used."""

from __future__ import annotations

import os
import ssl
import stat
import tempfile
from datetime import timedelta
from pathlib import Path

import pytest
from cryptography.hazmat.primitives import serialization

from distributed_input.api.errors import ConfigError
from distributed_input.api.identity import OPERATOR, ROLES, SIDECAR, WORKER, Identity
from distributed_input.link.tls.certificate import Certificate, checked
from testing.certificates import LIFE, authority, now


def issued(role: str = WORKER, uid: str = "u-1") -> Certificate:
    one = authority(uid)
    return checked(
        one.issue(role, now(), LIFE).encode(), one.key(role).encode(), one.certificate.encode()
    )


@pytest.mark.parametrize("role", ROLES)
def test_a_certificate_says_whose_it_is_and_until_when(role: str) -> None:
    found = issued(role)
    assert found.own == Identity("team", "digits", "u-1", role)
    assert 0 <= (now() + LIFE).timestamp() - found.expires < 10


def test_contexts_accept_tls_1_3_only() -> None:
    found = issued()
    for context in (found.client_context, found.server_context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_3
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert found.client_context.check_hostname
    assert found.server_context.num_tickets == 0


def test_systems_without_files_in_memory_use_a_private_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    load, modes = ssl.SSLContext.load_cert_chain, []

    def record(context: ssl.SSLContext, path: str, password: str) -> None:
        assert Path(path).parent == tmp_path
        modes.append(stat.S_IMODE(os.stat(path).st_mode))
        load(context, path, password=password)

    monkeypatch.delattr(os, "memfd_create", raising=False)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", record)
    assert issued().client_context.cert_store_stats()["x509_ca"] == 1
    assert set(modes) == {0o600}
    one = authority()
    refused(one.issue(WORKER, now(), LIFE), one.key(SIDECAR), one.certificate)
    assert list(tmp_path.iterdir()) == []


def refused(chain: str, key: str, authorities: str) -> str:
    with pytest.raises(ConfigError) as caught:
        checked(chain.encode(), key.encode(), authorities.encode())
    return str(caught.value)


def test_an_expired_certificate_is_refused() -> None:
    one = authority()
    chain = one.issue(WORKER, now() - 2 * LIFE, LIFE)
    assert "expired" in refused(chain, one.key(WORKER), one.certificate)


def test_clocks_may_differ_by_five_minutes() -> None:
    one = authority()
    for skew in (timedelta(minutes=5), -timedelta(minutes=5)):
        chain = one.issue(WORKER, now() + skew, LIFE)
        checked(chain.encode(), one.key(WORKER).encode(), one.certificate.encode())


def test_a_certificate_of_another_authority_is_refused() -> None:
    one, other = authority(), authority("u-2")
    refused(one.issue(WORKER, now(), LIFE), one.key(WORKER), other.certificate)


@pytest.mark.parametrize("part", range(3))
@pytest.mark.parametrize("text", ["", "no PEM", "ä"])
def test_unreadable_files_are_refused(part: int, text: str) -> None:
    one = authority()
    parts = [one.issue(OPERATOR, now(), LIFE), one.key(OPERATOR), one.certificate]
    parts[part] = text
    refused(*parts)


def test_an_encrypted_key_is_refused_without_a_question_on_the_terminal(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    load, passwords = ssl.SSLContext.load_cert_chain, []

    def record(context: ssl.SSLContext, path: str, password: str | None = None) -> None:
        passwords.append(password)
        load(context, path, password="")

    monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", record)
    one = authority()
    key = serialization.load_pem_private_key(one.key(WORKER).encode(), None)
    encrypted = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"password"),
    )
    refused(one.issue(WORKER, now(), LIFE), encrypted.decode(), one.certificate)
    assert set(passwords) == {""}  # None: OpenSSL asks
