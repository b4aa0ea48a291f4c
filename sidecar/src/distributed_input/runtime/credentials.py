"""The one factory of every gRPC port and channel: who may speak with whom.

A bearer token per input goes with every call (metadata `authorization: Bearer ...`).
It is checked once per call, never per message. Only the health service is open, for
probes know no token. TLS would go into `add_port` and `channel`: nothing else in this
package opens a gRPC port or channel.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import grpc

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses, tokens

TOKEN_ENV = "DISTRIBUTED_INPUT_TOKEN"  # noqa: S105 - the variable's name
_HEADER = "authorization"
_SCHEME = "Bearer "
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)

Options = Sequence[tuple[str, Any]]


class Credentials:
    """The token of one input, for both sides of a call.

    Without a source every call is accepted and none carries a token: `check_listen`
    allows that on loopback alone.
    """

    def __init__(self, source: tokens.Source | None = None) -> None:
        self._source = source

    @classmethod
    def from_args(cls, token_file: str | None, env: Mapping[str, str]) -> Credentials:
        """From `--token-file` (re-read when it changes), else the variable TOKEN_ENV, else none.

        Raises ConfigError where the file cannot be read or holds no usable token.
        """
        if token_file:
            return cls(tokens.FileToken(Path(token_file)))
        if env.get(TOKEN_ENV):
            return cls(tokens.FixedToken(tokens.validated(env[TOKEN_ENV], TOKEN_ENV)))
        return cls()

    @property
    def required(self) -> bool:
        """Whether callers need a token."""
        return self._source is not None

    def check_listen(self, listen: str) -> None:
        """Refuse to serve beyond this machine without a token. Raises ConfigError."""
        if not self.required and not addresses.is_loopback(listen):
            raise ConfigError(
                f"--listen {listen} is reachable from other machines and no token is set: whoever "
                f"registers a dataset runs code here. Give --token-file or {TOKEN_ENV}, "
                "or listen on 127.0.0.1"
            )

    def accepts(self, presented: Iterable[str]) -> bool:
        """Whether one of the presented authorization headers holds an accepted token."""
        if self._source is None:
            return True
        accepted = self._source.accepted()
        right = False
        for header in presented:
            offered = header.removeprefix(_SCHEME).encode()
            for token in accepted:
                # Constant time, and no early end: timing says nothing about the token.
                right |= hmac.compare_digest(offered, token.encode())
        return right

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """The metadata that a call of ours carries: for a while after a rotation both tokens."""
        if self._source is None:
            return ()
        return tuple((_HEADER, _SCHEME + token) for token in self._source.presented())

    def server_interceptors(self) -> list[grpc.ServerInterceptor]:
        """What a server needs to check callers."""
        return [_Guard(self)] if self.required else []

    def add_port(self, server: grpc.Server, listen: str) -> int:
        """Bind `server` to `listen`; returns the port. Raises RuntimeError where it is taken."""
        return server.add_insecure_port(listen)

    def channel(self, address: str, options: Options = ()) -> grpc.Channel:
        """A channel to `address` whose calls carry the token; use `serving.open_channel`."""
        channel = grpc.insecure_channel(address, options=list(options))
        return grpc.intercept_channel(channel, _Bearer(self)) if self.required else channel


class _Guard(grpc.ServerInterceptor):
    """Turns callers without the token away, before a request is read."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        # Stream to stream: answers whatever the real method's shape, without waiting for a message.
        self._denial: grpc.RpcMethodHandler[Any, Any] = grpc.stream_stream_rpc_method_handler(_deny)

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        if not handler_call_details.method.startswith(_OPEN_SERVICES):
            metadata = handler_call_details.invocation_metadata or ()
            headers = [value for key, value in metadata if key == _HEADER]
            if not self._credentials.accepts(h for h in headers if isinstance(h, str)):
                return self._denial
        return continuation(handler_call_details)


def _deny(_requests: Any, context: grpc.ServicerContext) -> Any:
    context.abort(
        grpc.StatusCode.UNAUTHENTICATED,
        "missing or wrong token: give this process the same --token-file (or "
        f"{TOKEN_ENV}) as the server it calls",
    )


class _CallDetails(NamedTuple):
    method: str
    timeout: float | None
    metadata: Sequence[tuple[str, str | bytes]] | None
    credentials: grpc.CallCredentials | None
    wait_for_ready: bool | None
    compression: grpc.Compression | None


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to every call. (grpcio refuses call credentials without TLS.)

    Once per call: what `continuation` returns is handed on as it is.
    """

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def _with_token(self, details: Any) -> Any:
        return _CallDetails(
            details.method,
            details.timeout,
            (*(details.metadata or ()), *self._credentials.metadata()),
            details.credentials,
            details.wait_for_ready,
            details.compression,
        )

    def intercept_unary_unary(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_unary_stream(
        self, continuation: Any, client_call_details: Any, request: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request)

    def intercept_stream_unary(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request_iterator)

    def intercept_stream_stream(
        self, continuation: Any, client_call_details: Any, request_iterator: Any
    ) -> Any:
        return continuation(self._with_token(client_call_details), request_iterator)
