"""Access to dispatchers, and the channels to them.

Channels are kept while trainers read, and opened for one request otherwise.
"""

from __future__ import annotations

import asyncio
import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

import grpc
import grpc.aio

from distributed_input.api import identity
from distributed_input.api.proto import dispatcher_pb2
from distributed_input_operator import metrics
from distributed_input_operator.budget.claim import InputKey
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
_METHOD = "/distributed_input.v1.Dispatcher/Status"
TIMEOUT_SECONDS = 2.0
MAX_CHANNELS = 2_500
"""Maximum number of kept channels. Each takes about 30 KiB and a file descriptor."""
_FILES_SHARE = 2
"""Channels take at most one part in this many of the files that the process may open."""
_MAX_SECONDS = 300.0
"""Time for which a channel with a client certificate is kept. It is a third of the shortest life of
a certificate, 15 min."""


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


@dataclass
class _Kept:
    """An open channel."""

    channel: grpc.aio.Channel
    address: str
    access: DispatcherAccess
    until: float
    requests: int = 0
    """Number of running requests."""


def max_channels() -> int:
    """Return how many channels may be kept with this process's limit of open files."""
    files, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if files == resource.RLIM_INFINITY:
        return MAX_CHANNELS
    return min(MAX_CHANNELS, files // _FILES_SHARE)


class Channels:
    """The channels of one operator. It belongs to one event loop."""

    def __init__(
        self,
        options: Sequence[tuple[str, Any]],
        clock: Callable[[], float] = time.monotonic,
        most: int | None = None,
    ) -> None:
        """Create without channels.

        At most `most` are kept (None: `max_channels`). Above that, a request opens its own.
        """
        self._options, self._clock = tuple(options), clock
        self._most = max_channels() if most is None else most
        self._kept: dict[InputKey, _Kept] = {}
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._kept)

    async def status(
        self, key: InputKey, address: str, access: Callable[[], DispatcherAccess], *, keep: bool
    ) -> bytes:
        """Request the status of a dispatcher. Return the serialized answer.

        Raises grpc.aio.AioRpcError. The channel is then closed, because its pod may be gone, or its
        credentials may be refused.

        Args:
            key: the dispatcher's input.
            address: host and port.
            access: called for new credentials.
            keep: whether to keep the channel for the next request.
        """
        kept = self._kept.get(key)
        if kept and (kept.address != address or self._clock() >= kept.until or not keep):
            self.close(key)
            kept = None
        if not keep or (kept is None and len(self._kept) >= self._most):
            used = access()
            async with used.channel(address, self._options) as channel:
                return await _request(channel, used)
        if kept is None:
            used = access()
            until = self._clock() + _MAX_SECONDS if used.chain else float("inf")
            kept = _Kept(used.channel(address, self._options), address, used, until)
        elif not kept.access.chain:
            kept.access = access()  # A token may have changed, and costs nothing.
        kept.requests += 1
        self._kept[key] = kept
        metrics.CHANNELS.set(len(self._kept))
        try:
            return await _request(kept.channel, kept.access)
        except BaseException:
            if self._kept.get(key) is kept:
                self.close(key)
            raise
        finally:
            kept.requests -= 1
            if self._kept.get(key) is not kept:
                self._end(kept)

    def close(self, key: InputKey) -> None:
        """Keep the channel of an input no longer. It is closed when its requests have ended.

        gRPC cancels the requests of a channel that is closed. Their callers would end like
        cancelled tasks.
        """
        if kept := self._kept.pop(key, None):
            metrics.CHANNELS.set(len(self._kept))
            self._end(kept)

    def _end(self, kept: _Kept) -> None:
        """Close a channel that is not kept any more, if it has no requests."""
        if not kept.requests:
            task = asyncio.get_running_loop().create_task(kept.channel.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)


async def _request(channel: grpc.aio.Channel, access: DispatcherAccess) -> bytes:
    call: grpc.aio.UnaryUnaryMultiCallable[dispatcher_pb2.StatusRequest, bytes]
    call = channel.unary_unary(
        _METHOD, request_serializer=dispatcher_pb2.StatusRequest.SerializeToString
    )
    response: bytes = await call(
        dispatcher_pb2.StatusRequest(max_skipped=1),
        timeout=TIMEOUT_SECONDS,
        metadata=access.metadata,
    )
    return response
