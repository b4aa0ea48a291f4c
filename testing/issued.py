"""The certificates of an encrypted input in a cluster, as its processes see them."""

from __future__ import annotations

import base64
from typing import Any

from cryptography import x509

from distributed_input.api import files, names
from distributed_input.link.tls.certificate import Certificate, checked
from testing.operator.cluster import Cluster


def certificate(cluster: Cluster, name: str, role: str) -> Certificate:
    """Return the certificate that the pods of a role mount. Raise ConfigError: it is not usable."""
    own = names.certificates(name)
    secret: Any = cluster.get("Secret", own)
    public: Any = cluster.get("ConfigMap", own)
    data = {key: value.encode() for key, value in public["data"].items()}
    key = base64.b64decode(secret["data"][files.private_key(role)])
    return checked(data[files.certificate(role)], key, data[files.AUTHORITIES_KEY])


def input_authority(cluster: Cluster, name: str) -> x509.Certificate | None:
    """Return the authority that the processes of an input trust. None: there is none yet."""
    found = cluster.get("ConfigMap", names.certificates(name))
    if found is None:
        return None
    (one,) = x509.load_pem_x509_certificates(found["data"][files.AUTHORITIES_KEY].encode())
    return one


def is_signed_by(own: x509.Certificate | None, issuer: bytes) -> bool:
    """Whether the first certificate of a PEM text has signed a certificate."""
    if own is None:
        return False
    try:
        own.verify_directly_issued_by(x509.load_pem_x509_certificate(issuer))
    except Exception:  # noqa: BLE001 - the name differs, or the signature
        return False
    return True
