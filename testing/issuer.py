"""A platform's root that issues authorities to the operator, as cert-manager writes them."""

from __future__ import annotations

from datetime import datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa

from distributed_input.api import identity
from distributed_input_operator.certificates.issuer import Issuer, parse
from distributed_input_operator.certificates.x509_parts import builder, common_name, key_usage
from testing.certificates import now

YEAR = timedelta(days=365)
KINDS = ("rsa", "ecdsa", "ed25519")
_NAMES = [x509.DNSName(identity.DOMAIN), x509.UniformResourceIdentifier(identity.DOMAIN)]
"""What the chart permits."""
_Key = rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey


def new_key(kind: str = "ecdsa") -> _Key:
    """Return a new private key of a kind."""
    if kind == "rsa":
        return rsa.generate_private_key(65537, 2048)
    if kind == "ed25519":
        return ed25519.Ed25519PrivateKey.generate()
    return ec.generate_private_key(ec.SECP256R1())


class PlatformRoot:
    """Signs authorities, whose keys are new if no key is given."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = common_name("platform")
        at = now()
        self.certificate = (
            builder(self._name, self._name, self._key, at - YEAR, at + 10 * YEAR)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .add_extension(key_usage(signs_certificates=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(self._key.public_key()), critical=False
            )
            .sign(self._key, hashes.SHA256())
        )

    def secret(
        self,
        at: datetime | None = None,
        life: timedelta = YEAR,
        *,
        ca: bool = True,
        path_length: int | None = None,
        signs: bool = True,
        key: _Key | None = None,
    ) -> dict[str, bytes]:
        """Return the fields of a Secret with an authority that begins at a time."""
        begin, own = at or now(), key or new_key()
        signed = (
            builder(common_name("operator"), self._name, own, begin, begin + life)
            .add_extension(
                x509.BasicConstraints(ca=ca, path_length=path_length if ca else None), critical=True
            )
            .add_extension(key_usage(signs_certificates=signs), critical=True)
            .add_extension(x509.NameConstraints(_NAMES, None), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(own.public_key()), critical=False
            )
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key()),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        private = own.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        pem = serialization.Encoding.PEM
        root = self.certificate.public_bytes(pem)
        return {"tls.crt": signed.public_bytes(pem), "tls.key": private, "ca.crt": root}

    def issuer(self, at: datetime | None = None, life: timedelta = YEAR) -> Issuer:
        """Return a new authority."""
        begin = at or now()
        return parse(self.secret(begin, life), begin)
