"""A channel whose new calls use the newest certificate.

The credentials of a gRPC channel are fixed. So a call after a renewal opens another channel. Calls
that run keep theirs, which is closed when its last call has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import grpc

from distributed_input.link.tls.certificate import Certificate
from distributed_input.link.tls.certificate_folder import CertificateFolder


class _CertifiedChannel:
    """A channel with one certificate."""

    def __init__(self, certificate: Certificate, channel: grpc.Channel) -> None:
        self.certificate, self.channel = certificate, channel
        self.calls = 0


class RotatingChannel(grpc.Channel):
    """Has the calls of a channel, but not its connectivity. Thread-safe."""

    def __init__(
        self, folder: CertificateFolder, open_channel: Callable[[Certificate], grpc.Channel]
    ) -> None:
        self._folder, self._open = folder, open_channel
        self._lock = threading.Lock()
        self._closed = False
        certificate = folder.current()
        self._newest = _CertifiedChannel(certificate, open_channel(certificate))
        self._older: list[_CertifiedChannel] = []

    def start(self, start: Callable[[grpc.Channel], Any]) -> Any:
        """Return a call that `start` makes on the channel for new calls."""
        certificate = self._folder.current()
        with self._lock:
            if certificate is not self._newest.certificate and not self._closed:
                self._older.append(self._newest)
                self._newest = _CertifiedChannel(certificate, self._open(certificate))
            used = self._newest
            used.calls += 1
            # Here, because gRPC cannot close a channel in the callback of its last call.
            unused = [one for one in self._older if not one.calls]
            self._older = [one for one in self._older if one.calls]
        for one in unused:
            one.channel.close()
        try:
            call = start(used.channel)
        except BaseException:
            self._release(used)
            raise
        if not call.add_callback(lambda: self._release(used)):
            self._release(used)  # it has ended already
        return call

    def _release(self, used: _CertifiedChannel) -> None:
        with self._lock:
            used.calls -= 1

    def close(self) -> None:
        """Cancel all calls, and close all connections."""
        with self._lock:
            self._closed = True
            every, self._older = [*self._older, self._newest], []
        for one in every:
            one.channel.close()

    def unary_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _UnaryCall(self, lambda channel: channel.unary_unary(*args, **kwargs))

    def stream_unary(self, *args: Any, **kwargs: Any) -> Any:
        return _UnaryCall(self, lambda channel: channel.stream_unary(*args, **kwargs))

    def unary_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _StreamCall(self, lambda channel: channel.unary_stream(*args, **kwargs))

    def stream_stream(self, *args: Any, **kwargs: Any) -> Any:
        return _StreamCall(self, lambda channel: channel.stream_stream(*args, **kwargs))

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        raise NotImplementedError("each certificate has its own connection")

    def unsubscribe(self, callback: Any) -> None:
        raise NotImplementedError("each certificate has its own connection")

    def __enter__(self) -> RotatingChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _UnaryCall:
    """See grpc.UnaryUnaryMultiCallable. `create` returns the one of a channel."""

    def __init__(self, channel: RotatingChannel, create: Callable[[grpc.Channel], Any]) -> None:
        self._channel, self._create = channel, create

    def __call__(self, request: Any, **options: Any) -> Any:
        return self.future(request, **options).result()

    def with_call(self, request: Any, **options: Any) -> Any:
        call = self.future(request, **options)
        return call.result(), call

    def future(self, request: Any, **options: Any) -> Any:
        return self._channel.start(lambda used: self._create(used).future(request, **options))


class _StreamCall(_UnaryCall):
    """See grpc.UnaryStreamMultiCallable."""

    def __call__(self, request: Any, **options: Any) -> Any:
        return self._channel.start(lambda used: self._create(used)(request, **options))
