"""A channel whose new calls use the newest certificate.

The credentials of a gRPC channel are fixed. So a call after a renewal opens another channel. Calls
that run keep theirs, which is closed when its last call has ended.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
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
    """Has the calls of a channel, but not its connectivity. Thread-safe.

    Args:
        folder: the certificate.
        open_channel: opens a channel with a certificate.
    """

    def __init__(
        self, folder: CertificateFolder, open_channel: Callable[[Certificate], grpc.Channel]
    ) -> None:
        self._folder, self._open = folder, open_channel
        self._lock = threading.Lock()
        self._closed = False
        certificate = folder.current()
        self._newest = _CertifiedChannel(certificate, open_channel(certificate))
        self._older: list[_CertifiedChannel] = []

    def acquire(self) -> _CertifiedChannel:
        """Return the channel for a new call. Call `release` after the call."""
        certificate = self._folder.current()
        with self._lock:
            if certificate is not self._newest.certificate and not self._closed:
                self._older.append(self._newest)
                self._newest = _CertifiedChannel(certificate, self._open(certificate))
            self._newest.calls += 1
            used = self._newest
            # Here, because gRPC cannot close a channel in the callback of its last call.
            unused = [one for one in self._older if not one.calls]
            self._older = [one for one in self._older if one.calls]
        for one in unused:
            one.channel.close()
        return used

    def release(self, used: _CertifiedChannel) -> None:
        """Count a call that has ended."""
        with self._lock:
            used.calls -= 1

    @contextmanager
    def used(self) -> Iterator[grpc.Channel]:
        """Yield the channel for a call that ends with the context."""
        one = self.acquire()
        try:
            yield one.channel
        finally:
            self.release(one)

    def close(self) -> None:
        """Cancel all calls, and close all connections."""
        with self._lock:
            self._closed = True
            every, self._older = [*self._older, self._newest], []
        for one in every:
            one.channel.close()

    def unary_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _RotatingUnaryCall(self, "unary_unary", method, args, kwargs)

    def unary_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _RotatingStreamCall(self, "unary_stream", method, args, kwargs)

    def stream_unary(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _RotatingUnaryCall(self, "stream_unary", method, args, kwargs)

    def stream_stream(self, method: str, *args: Any, **kwargs: Any) -> Any:
        return _RotatingStreamCall(self, "stream_stream", method, args, kwargs)

    def subscribe(self, callback: Any, try_to_connect: bool | None = False) -> None:
        raise NotImplementedError("each certificate has its own connection")

    def unsubscribe(self, callback: Any) -> None:
        raise NotImplementedError("each certificate has its own connection")

    def __enter__(self) -> RotatingChannel:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class _RotatingCall:
    """What the attributes of a stub are: see grpc.UnaryUnaryMultiCallable and its siblings."""

    def __init__(
        self,
        channel: RotatingChannel,
        shape: str,
        method: str,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
    ) -> None:
        self._channel = channel
        self._shape, self._args, self._kwargs = shape, (method, *args), kwargs

    def _create(self, current: grpc.Channel) -> Any:
        """Return the same attribute of a stub of one channel."""
        return getattr(current, self._shape)(*self._args, **self._kwargs)

    def _start(self, start: Callable[[Any], Any]) -> Any:
        """Start a call that is released when it ends."""
        used = self._channel.acquire()
        try:
            call = start(self._create(used.channel))
        except BaseException:
            self._channel.release(used)
            raise
        if not call.add_callback(lambda: self._channel.release(used)):
            self._channel.release(used)  # it has ended already
        return call


class _RotatingUnaryCall(_RotatingCall):
    def __call__(self, request: Any, **options: Any) -> Any:
        with self._channel.used() as current:
            return self._create(current)(request, **options)

    def with_call(self, request: Any, **options: Any) -> Any:
        with self._channel.used() as current:
            return self._create(current).with_call(request, **options)

    def future(self, request: Any, **options: Any) -> Any:
        return self._start(lambda call: call.future(request, **options))


class _RotatingStreamCall(_RotatingCall):
    def __call__(self, request: Any, **options: Any) -> Any:
        return self._start(lambda call: call(request, **options))
