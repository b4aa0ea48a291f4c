"""Certificates are renewed by what is in the cluster. An authority, and what it may sign."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from datetime import datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.x509.oid import ExtendedKeyUsageOID

from distributed_input.api import files, identity
from distributed_input.api.errors import ConfigError
from distributed_input.api.identity import SIDECAR, WORKER
from distributed_input.link.tls.certificate import _context, _load, checked
from distributed_input_operator.certificates.authority import derived_key
from distributed_input_operator.certificates.issuer import Issuer, UnusableIssuer, parse
from distributed_input_operator.certificates.renewal import MOUNTED_ROLES, first, renewed
from distributed_input_operator.certificates.x509_parts import builder, common_name, pem
from testing.certificates import LIFE, MASTER, authority, now
from testing.issuer import YEAR, PlatformRoot, new_key

AT = now().replace(microsecond=0)
ROOT = PlatformRoot()
ROOT_PEM = ROOT.certificate.public_bytes(serialization.Encoding.PEM)
FIRST, SECOND = ROOT.issuer(AT), ROOT.issuer(AT)
UNUSABLE = UnusableIssuer("SecretMissing", "it does not exist")
Data = Mapping[str, str]


def data(uid: str = "u-1", live: Data | None = None, at: datetime = AT, issuer=FIRST) -> Data:
    return renewed(authority(uid), live or {}, at, LIFE, issuer).data


def accepts(trusted: Data, presented: Data, uid: str = "u-1") -> bool:
    """Whether a process with `trusted` accepts the worker with `presented`."""
    chain, key = presented[files.certificate(WORKER)], authority(uid).key(WORKER)
    try:
        checked(chain.encode(), key.encode(), trusted[files.AUTHORITIES_KEY].encode())
    except ConfigError:
        return False
    return True


def root_accepts(chain: str, key: str, name: str) -> str:
    """Return why a client that trusts only the platform's root refuses a server. Empty: never."""
    client = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    client.load_verify_locations(cadata=ROOT_PEM.decode())
    server = _context(ssl.PROTOCOL_TLS_SERVER, ROOT_PEM)
    server.verify_mode = ssl.CERT_NONE
    _load(server, chain.encode(), key.encode())
    return problem(client, server, name)


def root_accepts_client(chain: str, key: str) -> str:
    """Return why a server that trusts only the platform's root refuses a client. Empty: never."""
    client, server = (
        ssl.SSLContext(one) for one in (ssl.PROTOCOL_TLS_CLIENT, ssl.PROTOCOL_TLS_SERVER)
    )
    client.check_hostname, client.verify_mode = False, ssl.CERT_NONE
    _load(client, chain.encode(), key.encode())
    server.load_verify_locations(cadata=ROOT_PEM.decode())
    server.verify_mode = ssl.CERT_REQUIRED
    one = authority()
    _load(server, one.issue(WORKER, AT, LIFE).encode(), one.key(WORKER).encode())
    return problem(client, server, "any")


def problem(client: ssl.SSLContext, server: ssl.SSLContext, name: str) -> str:
    """Return why one side refuses the other. Empty: they accept each other."""
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    connecting = client.wrap_bio(to_client, to_server, server_hostname=name)
    accepting = server.wrap_bio(to_server, to_client, server_side=True)
    done = 0
    try:
        for side in (connecting, accepting, connecting, accepting):
            try:
                side.do_handshake()
                done += 1
            except ssl.SSLWantReadError:
                pass
    except ssl.SSLCertVerificationError as error:
        return error.verify_message
    assert done == 2, "both sides have finished"
    return ""


def rogue(name: x509.GeneralName, by: Issuer, usage: x509.ObjectIdentifier) -> tuple[str, str]:
    """Return a chain that who has the issuer's key can sign, and its key."""
    key = new_key()
    signed = (
        builder(common_name("rogue"), by.certificate.subject, key, AT, AT + LIFE)
        .add_extension(x509.SubjectAlternativeName([name]), critical=False)
        .add_extension(x509.ExtendedKeyUsage([usage]), critical=False)
        .sign(by.key, hashes.SHA256())
    )
    text = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    return pem(signed) + by.chain, text.decode()


def test_the_chain_of_a_process_ends_at_the_root_of_the_platform() -> None:
    one = authority()
    chain = data()[files.certificate(WORKER)]
    assert chain.count("BEGIN CERTIFICATE") == 3, "process, input, platform"
    assert root_accepts(chain, one.key(WORKER), one.identity(WORKER).server_name) == ""


def test_an_input_trusts_its_own_authority_only() -> None:
    own = data()
    assert own[files.AUTHORITIES_KEY].count("BEGIN CERTIFICATE") == 1
    assert accepts(own, own)
    assert not accepts(own, data("u-2"), "u-2"), "although the issuer is the same"
    assert not accepts(data("u-2"), own)


@pytest.mark.parametrize("role", MOUNTED_ROLES)
def test_the_root_verifies_the_whole_chain_of_each_role(role: str) -> None:
    """Each authority has name constraints, also that of the release."""
    constraints = FIRST.certificate.extensions.get_extension_for_class(x509.NameConstraints)
    assert constraints.critical
    chain = data()[files.certificate(role)]
    assert root_accepts_client(chain, authority().key(role)) == ""


@pytest.mark.parametrize(
    ("host", "why"),
    [("distributed-input", ""), ("example.com", "permitted subtree violation")],
)
def test_the_authority_of_the_release_signs_only_names_of_inputs(host: str, why: str) -> None:
    """Other programs may trust the platform's root. The release's key is of no use there."""
    dns, uri = x509.DNSName(f"worker.{host}"), x509.UniformResourceIdentifier(f"spiffe://{host}/a")
    found = rogue(dns, FIRST, ExtendedKeyUsageOID.SERVER_AUTH)
    assert root_accepts(*found, dns.value) == why
    assert root_accepts_client(*rogue(uri, FIRST, ExtendedKeyUsageOID.CLIENT_AUTH)) == why


def test_a_process_does_not_accept_what_the_authority_of_the_release_signs() -> None:
    one = authority()
    uri = x509.UniformResourceIdentifier(one.identity(SIDECAR).uri)
    chain, key = rogue(uri, FIRST, ExtendedKeyUsageOID.CLIENT_AUTH)
    trusted = data()[files.AUTHORITIES_KEY].encode()
    with pytest.raises(ConfigError):
        checked(chain.encode(), key.encode(), trusted)


@pytest.mark.parametrize("end", ["u-2.distributed-input", "example.com"])
def test_an_authority_issues_only_names_of_its_own_input(end: str) -> None:
    """Other programs may trust the platform's root."""
    one = authority()
    key, name = derived_key(MASTER, "authority/u-1"), f"worker.{end}"
    leaf_key = derived_key(MASTER, "role/worker/u-1")
    signed = (
        builder(common_name(WORKER), common_name("distributed-input u-1"), leaf_key, AT, AT + LIFE)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(name)]), critical=False)
        .sign(key, hashes.SHA256())
    )
    own = data()[files.AUTHORITIES_KEY]
    chain = signed.public_bytes(serialization.Encoding.PEM).decode() + own + FIRST.chain
    assert root_accepts(chain, one.key(WORKER), name) == "permitted subtree violation"


def test_an_authority_may_not_sign_another_authority() -> None:
    for issuer in (FIRST, None):
        own = x509.load_pem_x509_certificate(data(issuer=issuer)[files.AUTHORITIES_KEY].encode())
        constraints = own.extensions.get_extension_for_class(x509.BasicConstraints)
        assert constraints.critical
        assert (constraints.value.ca, constraints.value.path_length) == (True, 0)


def test_nothing_changes_while_the_issuer_is_the_same() -> None:
    before = data()
    assert data(live=before, at=AT + timedelta(minutes=30)) == before


@pytest.mark.parametrize(
    ("before", "after"),
    [(FIRST, SECOND), (None, FIRST), (FIRST, None)],
    ids=["renewed", "switched on", "switched off"],
)
def test_processes_with_old_and_new_files_accept_each_other(before, after) -> None:
    """A volume gets the new files after a minute, each pod at another time."""
    old = data(issuer=before)
    new = data(live=old, issuer=after, at=AT + timedelta(minutes=10))
    assert new[files.AUTHORITIES_KEY] != old[files.AUTHORITIES_KEY]
    assert first(new[files.certificate(WORKER)]) == first(old[files.certificate(WORKER)])
    due = data(live=new, issuer=after, at=AT + timedelta(minutes=50))
    assert due[files.certificate(WORKER)] != new[files.certificate(WORKER)]
    for one in (old, new, due):
        assert all(accepts(one, other) for other in (old, new, due))


def test_a_longer_certificate_of_the_same_issuer_is_followed() -> None:
    """cert-manager may keep the key when it renews."""
    key = new_key()
    short, long = (parse(ROOT.secret(AT, life, key=key), AT) for life in (YEAR, 2 * YEAR))
    old = data(issuer=short)
    new = data(live=old, issuer=long)
    own = x509.load_pem_x509_certificate(new[files.AUTHORITIES_KEY].encode())
    assert own.not_valid_after_utc == long.end


def test_no_certificate_lives_longer_than_its_issuer() -> None:
    issuer = ROOT.issuer(AT, timedelta(minutes=10))
    found = renewed(authority(), {}, AT, LIFE, issuer)
    for key, text in found.data.items():
        leaf = x509.load_pem_x509_certificate(text.encode())
        assert leaf.not_valid_after_utc == issuer.end, key


def test_an_issuer_that_ends_earlier_replaces_what_would_live_longer() -> None:
    issuer = ROOT.issuer(AT, timedelta(minutes=10))
    for text in data(live=data(), issuer=issuer).values():
        assert x509.load_pem_x509_certificate(text.encode()).not_valid_after_utc == issuer.end


def test_a_certificate_that_cannot_live_longer_is_not_replaced_again_and_again() -> None:
    issuer = ROOT.issuer(AT, timedelta(minutes=10))
    before = data(issuer=issuer)
    assert data(live=before, issuer=issuer, at=AT + timedelta(minutes=9)) == before
    renewed_issuer = ROOT.issuer(AT + timedelta(minutes=9))
    after = data(live=before, issuer=renewed_issuer, at=AT + timedelta(minutes=9))
    assert first(after[files.certificate(WORKER)]) != first(before[files.certificate(WORKER)])


def test_without_an_usable_issuer_an_input_keeps_its_authority_and_renews_certificates() -> None:
    before = data()
    chain = before[files.AUTHORITIES_KEY] + FIRST.chain
    after = data(live=before, issuer=UNUSABLE, at=AT + timedelta(minutes=50))
    assert after[files.AUTHORITIES_KEY] == before[files.AUTHORITIES_KEY]
    for role in (WORKER, SIDECAR):
        key = files.certificate(role)
        assert first(after[key]) != first(before[key])
        assert after[key].removeprefix(first(after[key])) == chain
    assert accepts(before, after)
    assert accepts(after, before)


def test_without_an_usable_issuer_a_new_input_gets_nothing() -> None:
    assert renewed(authority(), {}, AT, LIFE, UNUSABLE, is_new=True).data == {}


def test_an_expired_authority_does_not_stay() -> None:
    short = ROOT.issuer(AT, timedelta(minutes=10))
    before = data(issuer=short)
    found = data(live=before, issuer=UNUSABLE, at=AT + timedelta(minutes=11))
    own = x509.load_pem_x509_certificate(found[files.AUTHORITIES_KEY].encode())
    own.verify_directly_issued_by(own)
    assert accepts(found, found)


@pytest.mark.parametrize("damage", [{}, {files.AUTHORITIES_KEY: "?", "worker.crt": "?"}])
def test_damaged_certificates_are_repaired_without_an_usable_issuer(damage) -> None:
    """Processes that run have the signed authority. It has the same name and key."""
    before = data()
    repaired = data(live=damage, issuer=UNUSABLE)
    after = data(live=repaired, issuer=FIRST)
    assert data(live=repaired, issuer=UNUSABLE) == repaired
    for one in (before, repaired, after):
        assert all(accepts(one, other) for other in (before, repaired, after))
    assert after[files.certificate(WORKER)].endswith(FIRST.chain)


@pytest.mark.parametrize("issuer", [FIRST, None, UNUSABLE], ids=["signed", "own", "unusable"])
def test_an_authority_that_a_user_adds_is_removed(issuer) -> None:
    before = data(issuer=None if issuer is None else FIRST)
    strange = authority("u-2").certificate
    own = before[files.AUTHORITIES_KEY]
    for text in (own + strange, strange + own, strange):
        after = data(live={**before, files.AUTHORITIES_KEY: text}, issuer=issuer)
        assert strange not in after[files.AUTHORITIES_KEY]


def test_an_own_authority_that_another_issuer_signed_is_replaced() -> None:
    stranger = PlatformRoot().issuer(AT)
    forged = authority().certificate_from(stranger, AT)
    before = {**data(), files.AUTHORITIES_KEY: forged}
    own = x509.load_pem_x509_certificate(data(live=before)[files.AUTHORITIES_KEY].encode())
    own.verify_directly_issued_by(FIRST.certificate)


def test_the_authority_of_another_key_of_the_operator_does_not_stay() -> None:
    """It has the same name, and the issuer has signed it."""
    before = renewed(authority(master=32 * b"x"), {}, AT, LIFE, FIRST).data
    for issuer in (FIRST, UNUSABLE):
        after = data(live=before, issuer=issuer)
        assert accepts(after, after)


def test_a_certificate_of_the_same_key_with_another_name_does_not_stay() -> None:
    """A user can let any authority sign the public key."""
    key = derived_key(MASTER, "authority/u-1")
    by = PlatformRoot().issuer(AT)
    signed = builder(common_name("other"), by.certificate.subject, key, AT, AT + YEAR).sign(
        by.key, hashes.SHA256()
    )
    after = data(live={**data(), files.AUTHORITIES_KEY: pem(signed)}, issuer=UNUSABLE)
    assert pem(signed) not in after[files.AUTHORITIES_KEY]
    assert accepts(after, after)


def test_a_new_input_gets_a_certificate_for_each_role() -> None:
    found = renewed(authority(), {}, AT, LIFE)
    roles = {files.certificate(role) for role in MOUNTED_ROLES}
    assert found.data.keys() == {files.AUTHORITIES_KEY, *roles}
    assert found.seconds == 2400


def test_the_operator_has_no_certificate_in_the_cluster() -> None:
    assert identity.OPERATOR not in MOUNTED_ROLES


@pytest.mark.parametrize("minutes", [0, 10, 39])
def test_nothing_changes_before_a_certificate_is_due(minutes: int) -> None:
    first = renewed(authority(), {}, AT, LIFE)
    later = renewed(authority(), first.data, AT + timedelta(minutes=minutes), LIFE)
    assert later.data == first.data
    assert later.seconds == 2400 - 60 * minutes


def test_what_is_due_is_renewed() -> None:
    first = renewed(authority(), {}, AT, LIFE)
    later = renewed(authority(), first.data, AT + timedelta(minutes=41), LIFE)
    changed = {key for key in first.data if later.data[key] != first.data[key]}
    assert changed == set(first.data) - {files.AUTHORITIES_KEY}, "the authority is not due"


@pytest.mark.parametrize("text", [None, "", "broken"])
def test_only_a_damaged_certificate_is_replaced(text: str | None) -> None:
    first = dict(renewed(authority(), {}, AT, LIFE).data)
    key = files.certificate(identity.WORKER)
    damaged = {name: value for name, value in first.items() if name != key}
    found = renewed(authority(), damaged if text is None else {**damaged, key: text}, AT, LIFE)
    assert {name for name in first if found.data[name] != first[name]} == {key}


def test_keys_of_another_input_are_not_kept() -> None:
    first = renewed(authority("u-1"), {}, AT, LIFE)
    second = renewed(authority("u-2"), first.data, AT, LIFE)
    assert all(second.data[key] != first.data[key] for key in first.data)
