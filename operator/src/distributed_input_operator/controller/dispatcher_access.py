"""How the operator proves to a dispatcher who it is, and what it reports if it is refused."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import grpc
import grpc.aio

from distributed_input.api import identity
from distributed_input_operator.certificates.authority import InputAuthority
from distributed_input_operator.objects.snapshot import Failure

TOKEN_REFUSED = "TokenRefused"  # noqa: S105 - a reason, not a token
CERTIFICATE_REFUSED = "CertificateRefused"
"""Reasons of the condition Unmeasured."""
_NOT_ACCEPTED = (
    "the dispatcher does not accept the operator's token. The input's Secret may have a token of "
    "an earlier release, or of a user: delete the Secret. The operator creates a new one within "
    "5 min, which running pods read without a restart"
)
_CERTIFICATE_MESSAGE = (
    "the certificates of the dispatcher and of the operator do not fit. The input's Secret of "
    "keys may be older than the operator's key: delete the Secret. The operator creates a new one "
    "within 5 min, which running pods read without a restart"
)


@dataclass(frozen=True)
class DispatcherAccess:
    """A token, or a client certificate. All fields of a certificate are PEM."""

    token: str = field(default="", repr=False)
    chain: str = ""
    key: str = field(default="", repr=False)
    authorities: str = ""
    server_name: str = ""
    """The name that the dispatcher's certificate must have."""

    def channel(self, address: str, options: Sequence[tuple[str, Any]]) -> grpc.aio.Channel:
        """Return a channel to a dispatcher."""
        if not self.chain:
            return grpc.aio.insecure_channel(address, options=options)
        credentials = grpc.ssl_channel_credentials(
            self.authorities.encode(), self.key.encode(), self.chain.encode()
        )
        name = ("grpc.ssl_target_name_override", self.server_name)
        return grpc.aio.secure_channel(address, credentials, options=[*options, name])

    @property
    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata of each call."""
        return (("authorization", f"Bearer {self.token}"),) if self.token else ()


def operator_access(authority: InputAuthority, now: datetime, life: timedelta) -> DispatcherAccess:
    """Return the access to the dispatcher of an encrypted input, with a new certificate."""
    return DispatcherAccess(
        chain=authority.issue(identity.OPERATOR, now, life),
        key=authority.key(identity.OPERATOR),
        authorities=authority.certificate,
        server_name=authority.identity(identity.DISPATCHER).server_name,
    )


def refused(error: grpc.aio.AioRpcError) -> Failure | None:
    """Return what the user can do if the dispatcher refused the operator. None: it did not."""
    if error.code() == grpc.StatusCode.UNAUTHENTICATED:
        return Failure(TOKEN_REFUSED, _NOT_ACCEPTED)
    if error.code() == grpc.StatusCode.PERMISSION_DENIED:
        return Failure(CERTIFICATE_REFUSED, _CERTIFICATE_MESSAGE)
    if "CERTIFICATE_VERIFY_FAILED" in (error.details() or ""):
        return Failure(CERTIFICATE_REFUSED, _CERTIFICATE_MESSAGE)
    return None
