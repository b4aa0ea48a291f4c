"""The identities in certificates, and what each role may call.

A certificate belongs to one role of one input. Its URI name is
`spiffe://distributed-input/ns/NAMESPACE/input/NAME/uid/UID/role/ROLE`. Servers also have the DNS
name of their role and input, because clients connect to IP addresses, which change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

OPERATOR, DISPATCHER, WORKER, SIDECAR, VIEWER = (
    "operator",
    "dispatcher",
    "worker",
    "sidecar",
    "viewer",
)
ROLES = (OPERATOR, DISPATCHER, WORKER, SIDECAR, VIEWER)
"""The viewer is a person who looks at the status of an input."""
SERVERS = frozenset({DISPATCHER, WORKER})
"""Roles that accept connections. Only their certificates are valid for a server."""

# Names of the files in a folder with the certificate of one process.
CHAIN_FILE, KEY_FILE, AUTHORITIES_FILE = "tls.crt", "tls.key", "ca.crt"

DOMAIN = "distributed-input"
"""The end of all DNS names, and the host of all URI names."""
DIRECT_TRANSFER = "direct transfer"
"""Stands for the direct connection to a worker, which is no method of gRPC."""
_DISPATCHER, _WORKER = "/distributed_input.v1.Dispatcher/", "/distributed_input.v1.Worker/"
ALLOWED: dict[str, frozenset[str]] = {
    f"{_DISPATCHER}WorkerHeartbeat": frozenset({WORKER}),
    f"{_DISPATCHER}ConsumerHeartbeat": frozenset({SIDECAR}),
    f"{_DISPATCHER}RegisterJob": frozenset({SIDECAR}),
    f"{_DISPATCHER}GetJob": frozenset({SIDECAR}),
    f"{_DISPATCHER}PutDataset": frozenset({SIDECAR}),
    f"{_DISPATCHER}GetDataset": frozenset({WORKER}),
    f"{_DISPATCHER}Status": frozenset({OPERATOR, VIEWER}),
    f"{_WORKER}Describe": frozenset({SIDECAR}),
    f"{_WORKER}Connect": frozenset({SIDECAR}),
    DIRECT_TRANSFER: frozenset({SIDECAR}),
}
"""Roles that may call a method. No role may call a method that is not here."""
_ANY_ROLE = ("/grpc.health.v1.Health/", "/grpc.reflection.")
_URI = re.compile(
    "spiffe://distributed-input/ns/(?P<namespace>[^/]+)/input/(?P<name>[^/]+)"
    "/uid/(?P<uid>[^/]+)/role/(?P<role>[^/]+)"
)


@dataclass(frozen=True)
class Identity:
    """A role of one input."""

    namespace: str
    name: str
    uid: str
    role: str

    @property
    def uri(self) -> str:
        """The URI name in a certificate."""
        return (
            f"spiffe://distributed-input/ns/{self.namespace}/input/{self.name}/uid/{self.uid}"
            f"/role/{self.role}"
        )

    @property
    def server_name(self) -> str:
        """The DNS name in the certificate of a server."""
        return f"{self.role}.{domain(self.uid)}"

    @property
    def is_server(self) -> bool:
        """Whether its certificate is valid for a server."""
        return self.role in SERVERS

    def with_role(self, role: str) -> Identity:
        """Return the identity of another role of the same input."""
        return replace(self, role=role)


def domain(uid: str) -> str:
    """Return the end of the DNS names of an input's servers."""
    return f"{uid}.{DOMAIN}"


def parse(uris: Iterable[str]) -> Identity | None:
    """Return the identity among the URI names of a certificate. None: there is not exactly one."""
    found = [match for match in map(_URI.fullmatch, uris) if match]
    if len(found) != 1 or found[0]["role"] not in ROLES:
        return None
    return Identity(**found[0].groupdict())


def refusal(own: Identity, peer: Identity | None, method: str) -> str:
    """Return why a peer may not call a method of this process. Empty: it may.

    `method` is a path as in gRPC, or DIRECT_TRANSFER.
    """
    if peer is None:
        return "the certificate has no identity of distributed-input"
    if peer.with_role(own.role) != own:
        return (
            f"the certificate is for input {peer.namespace}/{peer.name} (uid {peer.uid}), not for "
            f"{own.namespace}/{own.name} (uid {own.uid})"
        )
    allowed = frozenset(ROLES) if method.startswith(_ANY_ROLE) else ALLOWED.get(method, frozenset())
    if peer.role not in allowed:
        return f"the role {peer.role} may not use {method}"
    return ""
