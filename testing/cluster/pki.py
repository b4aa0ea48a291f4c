"""Certificates of a test cluster, from one short-lived authority, and kubeconfig files."""

from __future__ import annotations

import base64
import datetime
import ipaddress
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from distributed_input_operator.certificates import x509_parts

_VALID = datetime.timedelta(days=30)


@dataclass(frozen=True)
class Pair:
    """A certificate and its private key, both PEM."""

    certificate: bytes
    key: bytes


class Authority:
    """A certificate authority that all components of the cluster trust."""

    def __init__(self) -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _name("distributed-input-test-ca")
        signed = (
            _builder(self._name, self._name, self._key)
            .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
            .sign(self._key, hashes.SHA256())
        )
        self.certificate = signed.public_bytes(serialization.Encoding.PEM)

    def issue(self, common_name: str, organization: str = "", hosts: Sequence[str] = ()) -> Pair:
        """Issue a certificate for TLS clients and servers.

        common_name: the user name of a client. organization: the client's group. hosts: names and
        addresses of a server.
        """
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, ExtendedKeyUsageOID.SERVER_AUTH]
        signed = (
            _builder(_name(common_name, organization), self._name, key)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.SubjectAlternativeName([_host(host) for host in (*hosts, common_name)]),
                critical=False,
            )
            .sign(self._key, hashes.SHA256())
        )
        return Pair(signed.public_bytes(serialization.Encoding.PEM), key_pem(key))


def key_pem(key: ec.EllipticCurvePrivateKey | None = None) -> bytes:
    """Return a private key as PEM: the given key or a new one."""
    return (key or ec.generate_private_key(ec.SECP256R1())).private_bytes(
        serialization.Encoding.PEM,
        # The API server extracts a public key from this format of a private key, not from PKCS8.
        serialization.PrivateFormat.TraditionalOpenSSL,
        serialization.NoEncryption(),
    )


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey
) -> x509.CertificateBuilder:
    # One hour in the past: the clock of a machine that was suspended may be late.
    begin = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(hours=1)
    return x509_parts.builder(subject, issuer, key, begin, begin + _VALID)


def _name(common_name: str, organization: str = "") -> x509.Name:
    parts = [x509.NameAttribute(NameOID.COMMON_NAME, common_name)]
    if organization:
        parts.append(x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization))
    return x509.Name(parts)


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def kubeconfig_user(pair: Pair) -> dict[str, str]:
    """Return a kubeconfig's `user` that authenticates with a certificate."""
    return {
        "client-certificate-data": base64.b64encode(pair.certificate).decode(),
        "client-key-data": base64.b64encode(pair.key).decode(),
    }


def write_kubeconfig(
    path: Path, url: str, authority: bytes, user: dict[str, str], namespace: str = "default"
) -> None:
    """Write a kubeconfig, readable by its owner only, with one context.

    authority: PEM of the server's CA. user: from `kubeconfig_user`, or {"token": …}.
    """
    trust = base64.b64encode(authority).decode()
    context = {"cluster": "test", "user": "test", "namespace": namespace}
    path.touch(mode=0o600)
    cluster = {"server": url, "certificate-authority-data": trust}
    content = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "test", "cluster": cluster}],
        "users": [{"name": "test", "user": user}],
        "contexts": [{"name": "test", "context": context}],
        "current-context": "test",
    }
    path.write_text(yaml.safe_dump(content))
