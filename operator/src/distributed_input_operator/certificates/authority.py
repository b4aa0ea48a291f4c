"""The certificate authority of one input, derived from the operator's key.

Each input has its own authority, so that no certificate of one input is valid in another one. The
private keys of the authority and of the roles are derived from the operator's key and the input's
uid. So the operator need not read the input's Secret to know them. The authority signs its own
certificate, or an authority of the cluster's administrators does. Name and key are the same, so
certificates of before fit.
"""

from __future__ import annotations

import functools
import hashlib
import hmac
from datetime import datetime, timedelta, timezone

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from distributed_input.api import identity
from distributed_input.api.identity import Identity
from distributed_input_operator.certificates.issuer import Issuer
from distributed_input_operator.certificates.x509_parts import (
    authority,
    builder,
    common_name,
    issue,
    key_pem,
    pem,
)

CLOCK_SKEW = timedelta(hours=1)
"""Maximum time that the clock of a process may be behind the operator's."""
_ORDER = 0xFFFFFFFF00000000FFFFFFFFFFFFFFFFBCE6FAADA7179E84F3B9CAC2FC632551
"""Number of private keys of the curve P-256, plus 1."""
_BEGIN, _END = datetime(2020, 1, 1, tzinfo=timezone.utc), datetime(2120, 1, 1, tzinfo=timezone.utc)
"""An authority that signs itself lives as long as the input."""
_URI_HOST = x509.UniformResourceIdentifier(identity.DOMAIN)


def derived_key(master: bytes, purpose: str) -> ec.EllipticCurvePrivateKey:
    """Return the private key for a purpose. Different purposes have unrelated keys."""
    digest = hmac.digest(master, purpose.encode(), hashlib.sha512)
    number = int.from_bytes(digest, "big") % (_ORDER - 1) + 1
    return ec.derive_private_key(number, ec.SECP256R1())


class InputAuthority:
    """Issues the certificates of one input.

    Args:
        master: the operator's key.
        owner: any identity of the input.
    """

    def __init__(self, master: bytes, owner: Identity) -> None:
        self._master, self._owner = master, owner
        self._key = derived_key(master, f"authority/{owner.uid}")
        self._name = common_name(f"distributed-input {owner.uid}"[:64])

    @functools.cached_property
    def certificate(self) -> str:
        """The authority's certificate that it signs itself, as PEM. Its signature is random."""
        return pem(self._unsigned(self._name, _BEGIN, _END).sign(self._key, hashes.SHA256()))

    def certificate_from(self, issuer: Issuer, now: datetime) -> str:
        """Return a certificate of the authority that an issuer signs, as PEM."""
        signed = (
            self._unsigned(issuer.certificate.subject, now - CLOCK_SKEW, issuer.end)
            .add_extension(issuer.key_identifier, critical=False)
            .sign(issuer.key, issuer.hash)
        )
        return pem(signed)

    def is_own(self, certificate: x509.Certificate) -> bool:
        """Whether this is a certificate of this authority, of any issuer."""
        fits = certificate.public_key() == self._key.public_key()
        return fits and certificate.subject == self._name

    def _unsigned(
        self, issuer: x509.Name, begin: datetime, end: datetime
    ) -> x509.CertificateBuilder:
        """Return a certificate of this authority before it is signed.

        It may issue certificates of processes only, and DNS names of its own input only: other
        programs may trust its issuer. URI names end with a host that all inputs have.
        """
        names = [x509.DNSName(identity.domain(self._owner.uid)), _URI_HOST]
        unsigned = authority(self._name, issuer, self._key, begin, end)
        return unsigned.add_extension(x509.NameConstraints(names, None), critical=True)

    def key(self, role: str) -> str:
        """Return the private key of a role, as PEM. It does not change while the input exists."""
        return key_pem(self._role_key(role))

    def identity(self, role: str) -> Identity:
        """Return the identity of a role."""
        return self._owner.with_role(role)

    def issue(self, role: str, now: datetime, life: timedelta) -> str:
        """Return a new certificate for a role, as PEM."""
        own = self.identity(role)
        names: list[x509.GeneralName] = [x509.UniformResourceIdentifier(own.uri)]
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH]
        if own.is_server:
            names.append(x509.DNSName(own.server_name))
            usages.append(ExtendedKeyUsageOID.SERVER_AUTH)
        key, begin, end = self._role_key(role), now - CLOCK_SKEW, now + life
        unsigned = builder(common_name(role), self._name, key, begin, end)
        return pem(issue(unsigned, names, usages, self._key))

    def seconds_left(
        self, pem: str, role: str, now: datetime, life: timedelta, end: datetime = _END
    ) -> float:
        """Return the time until a certificate is due for renewal, at 2/3 of its life.

        It is 0 if the certificate is due, if this authority did not issue it for the role, or if it
        lives longer than `life` or than the authority, which ends at `end`.
        """
        try:
            leaf = x509.load_pem_x509_certificate(pem.encode())
            self._key.public_key().verify(
                leaf.signature, leaf.tbs_certificate_bytes, ec.ECDSA(hashes.SHA256())
            )
            names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        except Exception:  # noqa: BLE001 - a user may have written any data into the ConfigMap
            return 0.0
        uris = names.get_values_for_type(x509.UniformResourceIdentifier)
        fits = leaf.public_key() == self._role_key(role).public_key()
        until = leaf.not_valid_after_utc
        if not fits or uris != [self.identity(role).uri] or until > min(now + life, end):
            return 0.0
        # A new one would not live longer than one that lives as long as the authority.
        due = until if until == end else until - life / 3
        return max(0.0, (due - now).total_seconds())

    def _role_key(self, role: str) -> ec.EllipticCurvePrivateKey:
        return derived_key(self._master, f"role/{role}/{self._owner.uid}")
