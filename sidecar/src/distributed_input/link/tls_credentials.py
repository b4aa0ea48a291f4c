"""Credentials with certificates, in place of tokens."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, cast

import grpc

from distributed_input.api import identity
from distributed_input.link.credentials import Credentials, Options
from distributed_input.link.tls.certificate import Certificate
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls.rotating_channel import RotatingChannel

_SHAPES = ("unary_unary", "unary_stream", "stream_unary", "stream_stream")
_SAN = "x509_subject_alternative_name"


def credentials_of(
    tls_folder: str | Path | None, token_file: str | None, env: Mapping[str, str]
) -> Credentials:
    """Return credentials with the certificate in a folder, or else with a token.

    Raises:
        ConfigError: the token cannot be used; see `Credentials.from_args`.
        UnavailableError: the folder has no usable certificate.
    """
    if tls_folder:
        return TlsCredentials(CertificateFolder(Path(tls_folder)))
    return Credentials.from_args(token_file, env)


class TlsCredentials(Credentials):
    """Servers require a certificate of the same input, and check the role of each call.

    Two such processes always use TLS 1.3. gRPC also accepts TLS 1.2 from another program that has a
    valid certificate, unless GRPC_CIPHERS_ENV is set, as in pods.
    """

    def __init__(self, folder: CertificateFolder) -> None:
        super().__init__()
        self._folder = folder

    @property
    def certificates(self) -> CertificateFolder:
        """The folder with the certificate."""
        return self._folder

    @property
    def required(self) -> bool:
        """Whether callers must prove who they are: always."""
        return True

    def server_interceptors(self) -> list[grpc.ServerInterceptor]:
        """Return the interceptor that checks the caller's input and role."""
        return [_RoleInterceptor(self._folder)]

    def add_port(self, server: grpc.Server, listen: str) -> int:
        """Bind `server` to `listen`; return the port. Raise RuntimeError if the port is in use."""
        initial = self._folder.current()
        fetch = _Fetcher(self._folder, initial)
        credentials = grpc.dynamic_ssl_server_credentials(
            _server_configuration(initial),
            fetch,  # type: ignore[arg-type]  # gRPC documents that it may return None
            require_client_authentication=True,
        )
        return server.add_secure_port(listen, credentials)

    def channel(
        self, address: str, options: Options = (), server: str = identity.DISPATCHER
    ) -> grpc.Channel:
        """Return a channel to the server of a role of the same input."""

        def open_channel(certificate: Certificate) -> grpc.Channel:
            name = certificate.own.with_role(server).server_name
            return grpc.secure_channel(
                address,
                grpc.ssl_channel_credentials(
                    certificate.authorities, certificate.key, certificate.chain
                ),
                options=[*options, ("grpc.ssl_target_name_override", name)],
            )

        return RotatingChannel(self._folder, open_channel)


def _server_configuration(certificate: Certificate) -> grpc.ServerCertificateConfiguration:
    return grpc.ssl_server_certificate_configuration(
        [(certificate.key, certificate.chain)], certificate.authorities
    )


class _Fetcher:
    """gRPC calls it before each handshake. None: the certificate is the same as before."""

    def __init__(self, folder: CertificateFolder, initial: Certificate) -> None:
        self._folder, self._last = folder, initial

    def __call__(self) -> grpc.ServerCertificateConfiguration | None:
        current = self._folder.current()
        if current is self._last:
            return None
        self._last = current
        return _server_configuration(current)


class _RoleInterceptor(grpc.ServerInterceptor):
    """Rejects calls of peers of another input or role, before the method runs."""

    def __init__(self, folder: CertificateFolder) -> None:
        self._folder = folder

    def intercept_service(
        self, continuation: Callable[[Any], Any], handler_call_details: Any
    ) -> Any:
        handler = continuation(handler_call_details)
        if handler is None:
            return None
        method = handler_call_details.method
        shape = next(one for one in _SHAPES if getattr(handler, one))
        wrapped = self._authorized(method, getattr(handler, shape))
        return getattr(grpc, f"{shape}_rpc_method_handler")(
            wrapped, handler.request_deserializer, handler.response_serializer
        )

    def _authorized(self, method: str, behaviour: Callable[..., Any]) -> Callable[..., Any]:
        def call(request: Any, context: grpc.ServicerContext) -> Any:
            names: Iterable[bytes] = cast(Any, context.auth_context()).get(_SAN, ())
            uris = [name.decode(errors="replace") for name in names]
            peer = identity.parse(uris)
            if refusal := identity.refusal(self._folder.current().own, peer, method):
                context.abort(grpc.StatusCode.PERMISSION_DENIED, refusal)
            return behaviour(request, context)

        return call
