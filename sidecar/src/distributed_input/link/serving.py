"""gRPC servers and channels, with the options that were fastest for messages of 1 MiB.

serving = make_server([service_handler(...)], listen, credentials)
serving.start()
...
serving.stop(grace=20)
"""

from __future__ import annotations

import socket
from collections.abc import Sequence
from concurrent import futures
from typing import Any

import grpc
import grpc.experimental
from grpc_health.v1 import health, health_pb2, health_pb2_grpc
from grpc_reflection.v1alpha import reflection

from distributed_input.api import identity
from distributed_input.api.errors import ConfigError
from distributed_input.link import unix_sockets
from distributed_input.link.credentials import Credentials, Options
from distributed_input.link.stubs import Handler
from distributed_input.runtime import addresses

_MIB = 1 << 20
_NAMED = grpc.ServiceRpcHandler

# One data frame per message, and a window of two messages. A larger window was not faster, and each
# stream without a reader keeps a window in memory. BDP probes only add cost.
_TRANSPORT: Options = (
    ("grpc.max_receive_message_length", -1),
    ("grpc.max_send_message_length", -1),
    ("grpc.http2.max_frame_size", 16777215),
    ("grpc.http2.lookahead_bytes", 2 * _MIB),
    ("grpc.http2.bdp_probe", 0),
    # Detects a stopped or disconnected peer after about 8 s. A slow peer still responds, because
    # gRPC's own threads do it without the GIL. Newer versions of gRPC use the ping timeout (one
    # minute by default), older versions the keepalive timeout.
    ("grpc.keepalive_time_ms", 4000),
    ("grpc.keepalive_timeout_ms", 4000),
    ("grpc.http2.ping_timeout_ms", 4000),
    ("grpc.keepalive_permit_without_calls", 1),
    ("grpc.http2.max_pings_without_data", 0),
)
_SERVER: Options = (
    # Otherwise two servers on one machine may share a port, and calls reach either of them.
    ("grpc.so_reuseport", 0),
    ("grpc.http2.min_ping_interval_without_data_ms", 1000),
    ("grpc.http2.max_ping_strikes", 0),
)
_CHANNEL: Options = (
    (grpc.experimental.ChannelOptions.SingleThreadedUnaryStream, 1),
    # Pods connect directly. A proxy in the environment is for other destinations.
    ("grpc.enable_http_proxy", 0),
    ("grpc.initial_reconnect_backoff_ms", 200),
    ("grpc.min_reconnect_backoff_ms", 3000),
    ("grpc.max_reconnect_backoff_ms", 3000),
)


class Server:
    """A gRPC server with health and reflection, bound to a port. `make_server` creates it."""

    def __init__(
        self,
        server: grpc.Server,
        servicer: health.HealthServicer,
        names: Sequence[str],
        address: str,
    ) -> None:
        self._server = server
        self._servicer = servicer
        self._names = ("", *names)
        self._healthy = False
        self.address = address
        """What the server is bound to: host:port with the actual port, or unix:PATH."""
        self.set_healthy(False)

    @property
    def healthy(self) -> bool:
        """Whether the health service reports SERVING."""
        return self._healthy

    def set_healthy(self, healthy: bool) -> None:
        """Set what the health service reports for the server and each of its services."""
        self._healthy = healthy
        answers = health_pb2.HealthCheckResponse
        for name in self._names:
            self._servicer.set(name, answers.SERVING if healthy else answers.NOT_SERVING)

    def start(self) -> None:
        """Start the server, and report SERVING."""
        self._server.start()
        self.set_healthy(True)

    def stop(self, grace: float) -> None:
        """Reject new calls, and cancel calls that still run after `grace` seconds."""
        self.set_healthy(False)
        self._servicer.enter_graceful_shutdown()
        self._server.stop(grace).wait(grace + 5)


def make_server(
    handlers: Sequence[Handler],
    listen: str,
    credentials: Credentials,
    *,
    max_workers: int = 32,
    max_message_bytes: int = -1,
    options: Options = (),
) -> Server:
    """Return a server that is bound but not started.

    Args:
        handlers: the services.
        listen: "host:port"; port 0 selects a free port. Or "unix:PATH", for the users who may use
            the socket's folder.
        credentials: the token or certificate that calls need.
        max_workers: threads. Each running call uses one, and a stream runs until it is closed.
        max_message_bytes: maximum size of a request; -1: no limit.
        options: gRPC options that override the defaults.

    Raises:
        ConfigError: the port or path cannot be bound, or `listen` needs a token and there is none.
    """
    addresses.check(listen, "--listen")
    credentials.check_listen(listen)
    limit = (("grpc.max_receive_message_length", max_message_bytes),)
    server = grpc.server(
        futures.ThreadPoolExecutor(max_workers, thread_name_prefix="grpc"),
        handlers=list(handlers),
        interceptors=credentials.server_interceptors(),
        options=_merged(_TRANSPORT, _SERVER, limit, options),
    )
    address = _bind(server, listen, credentials)
    names = [handler.service_name() for handler in handlers if isinstance(handler, _NAMED)]
    servicer = health.HealthServicer()
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    reflected = (*names, health.SERVICE_NAME, reflection.SERVICE_NAME)
    reflection.enable_server_reflection(reflected, server)
    return Server(server, servicer, names, address)


def open_channel(
    address: str,
    credentials: Credentials,
    *,
    server: str = identity.DISPATCHER,
    private: bool = False,
    options: Options = (),
) -> grpc.Channel:
    """Return a channel to `address` whose calls carry the token or the certificate.

    Channels to one address share a TCP connection, unless `private` is set. With certificates,
    `server` is the role that the server must have.
    """
    own = (("grpc.use_local_subchannel_pool", 1),) if private else ()
    return credentials.channel(address, _merged(_TRANSPORT, _CHANNEL, own, options), server)


def _bind(server: grpc.Server, listen: str, credentials: Credentials) -> str:
    """Bind a server, and return its address with the actual port. Raise ConfigError if it fails."""
    if path := addresses.unix_path(listen):
        unix_sockets.make_free(path, f"--listen {listen}")
        try:
            credentials.add_port(server, listen)
        except RuntimeError as error:
            raise ConfigError(f"--listen {listen}: {error}: set another path") from error
        return listen
    host, port = addresses.parse(listen)
    try:
        _try_to_bind(host, port)
        bound = credentials.add_port(server, listen if host else f"[::]:{port}")
    except (OSError, RuntimeError) as error:
        cause = getattr(error, "strerror", None) or "another process uses the port"
        raise ConfigError(
            f"--listen {listen}: cannot bind ({cause}): set another port, or port 0 for a free port"
        ) from error
    return addresses.join(host, bound)


def _try_to_bind(host: str, port: int) -> None:
    """Raise an OSError with the cause. gRPC only prints the cause to stderr."""
    found = socket.getaddrinfo(
        host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE | socket.AI_ADDRCONFIG
    )
    family, kind, protocol, _, address = found[0]
    with socket.socket(family, kind, protocol) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        trial.bind(address)


def _merged(*groups: Options) -> list[tuple[str, Any]]:
    """Return the options of all groups. Later groups override earlier ones."""
    merged: dict[str, Any] = {}
    for group in groups:
        merged.update(group)
    return list(merged.items())
