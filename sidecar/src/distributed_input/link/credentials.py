"""Authentication of gRPC calls. All gRPC ports and channels are created here.

Every call carries the input's bearer token (metadata `authorization: Bearer ...`). The server
checks it once per call, not per message. Only the health service accepts calls without a token,
because probes have none. `link.tls_credentials` replaces tokens by certificates.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import grpc

from distributed_input.api import identity
from distributed_input.api.environment import TOKEN_ENV
from distributed_input.api.errors import ConfigError
from distributed_input.runtime import addresses
from distributed_input.runtime.files import tokens

if TYPE_CHECKING:
    from distributed_input.link.tls.certificate_folder import CertificateFolder

_HEADER = "authorization"
_SCHEME = "Bearer "
_OPEN_SERVICES = ("/grpc.health.v1.Health/",)

Options = Sequence[tuple[str, Any]]


class Credentials:
    """The token of one input, for servers and clients.

    Without a token source, servers accept every call and calls carry no token. `check_listen`
    allows that only on the loopback interface.
    """

    def __init__(self, source: tokens.TokenSource | None = None) -> None:
        self._source = source

    @classmethod
    def from_args(cls, token_file: str | None, env: Mapping[str, str]) -> Credentials:
        """Create from --token-file, or else from the variable TOKEN_ENV, or else without a token.

        Raises:
            ConfigError: the file cannot be read or contains no valid token.
        """
        if token_file:
            return cls(tokens.FileToken(Path(token_file)))
        if env.get(TOKEN_ENV):
            return cls(tokens.FixedToken(tokens.validated(env[TOKEN_ENV], TOKEN_ENV)))
        return cls()

    @property
    def certificates(self) -> CertificateFolder | None:
        """The folder with the certificate of this process. None: nothing is encrypted."""
        return None

    @property
    def required(self) -> bool:
        """Whether calls need a token."""
        return self._source is not None

    def check_listen(self, listen: str) -> None:
        """Raise ConfigError if other machines can reach `listen` and there is no token."""
        if not self.required and not addresses.is_loopback(listen):
            raise ConfigError(
                f"--listen {listen}: other machines can reach it, and no token is set, so anyone "
                f"could register a dataset and run code here. Set --token-file or {TOKEN_ENV}, or "
                "listen on 127.0.0.1"
            )

    def accepts(self, presented: Iterable[str]) -> bool:
        """Return whether one of the authorization headers contains an accepted token."""
        if self._source is None:
            return True
        accepted_any = False
        for header in presented:
            for token in self._source.accepted():
                # Constant time and no early exit, so that timing reveals nothing about the token.
                offered = header.removeprefix(_SCHEME).encode()
                accepted_any |= hmac.compare_digest(offered, token.encode())
        return accepted_any

    def metadata(self) -> tuple[tuple[str, str], ...]:
        """Return the metadata of a call. After a rotation it has both tokens for a while."""
        if self._source is None:
            return ()
        return tuple((_HEADER, _SCHEME + token) for token in self._source.presented())

    def server_interceptors(self) -> list[grpc.ServerInterceptor]:
        """Return the interceptors of a server that checks tokens."""
        return [_TokenInterceptor(self)] if self.required else []

    def add_port(self, server: grpc.Server, listen: str) -> int:
        """Bind `server` to `listen`; return the port. Raise RuntimeError if the port is in use."""
        return server.add_insecure_port(listen)

    def channel(
        self, address: str, options: Options = (), server: str = identity.DISPATCHER
    ) -> grpc.Channel:
        """Return a channel to `address` whose calls carry the token. See `serving.open_channel`."""
        del server  # nothing proves its role
        channel = grpc.insecure_channel(address, options=list(options))
        return grpc.intercept_channel(channel, _Bearer(self)) if self.required else channel


class _TokenInterceptor(grpc.ServerInterceptor):
    """Rejects calls without the token, before a request is read."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials
        # A stream-stream handler responds to methods of any shape without waiting for a message.
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
        "missing or wrong token: set --token-file (or "
        f"{TOKEN_ENV}) to the same token as the server's",
    )


class _Bearer(
    grpc.UnaryUnaryClientInterceptor,
    grpc.UnaryStreamClientInterceptor,
    grpc.StreamUnaryClientInterceptor,
    grpc.StreamStreamClientInterceptor,
):
    """Adds the token to every call. (grpcio rejects call credentials without TLS.)"""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def _intercept(self, continuation: Any, details: Any, request: Any) -> Any:
        metadata = (*(details.metadata or ()), *self._credentials.metadata())
        return continuation(details._replace(metadata=metadata), request)

    intercept_unary_unary: Any = _intercept
    intercept_unary_stream: Any = _intercept
    intercept_stream_unary: Any = _intercept
    intercept_stream_stream: Any = _intercept
