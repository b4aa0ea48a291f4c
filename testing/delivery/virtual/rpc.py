"""gRPC channels in memory, with the methods of `grpc.Channel` that `link.stubs.Stub` calls.

Requests and responses pass as bytes. `rpc_server` has the other end.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from testing.delivery.virtual.network import Connection, Network
from testing.delivery.virtual.primitives import wait_for, wake_one
from testing.delivery.virtual.scheduler import SimProcess, Task

_BACKOFF_SECONDS = (0.2, 0.32, 0.5, 0.8, 1.3, 2.1, 3.0)


class SimRpcError(grpc.RpcError, grpc.Call):
    """The error of a failed call."""

    def __init__(self, code: Any, details: str, trailing: Any = ()) -> None:
        super().__init__(f"{code}: {details}")
        self._code, self._details, self._trailing = code, details, trailing

    def code(self) -> Any:
        return self._code

    def details(self) -> str:
        return self._details

    def trailing_metadata(self) -> Any:
        return self._trailing

    def _unused(self, *_: Any) -> Any:
        raise NotImplementedError

    initial_metadata = is_active = time_remaining = cancel = _unused
    add_callback: Any = _unused


class SimChannel:
    """A channel of one process to one address."""

    def __init__(self, network: Network, process: SimProcess, address: str, window: int) -> None:
        self.network, self.process, self.address, self.window = network, process, address, window
        self.calls: dict[ClientCall, None] = {}
        self._connection: Connection | None = None
        self._failures = 0
        self._retry_at = 0.0
        self._closed = False

    def connect(self) -> Connection | None:
        """Return an open connection, or None if the server refuses or just refused."""
        if self._closed:
            raise ValueError("Cannot invoke RPC on closed channel!")
        if self._connection is not None:
            if self._connection.open:
                return self._connection
            self._connection = None
        scheduler = self.network.scheduler
        if scheduler.now < self._retry_at:
            return None
        server = self.network.servers.get(self.address)
        if server is None or not server.accepting:
            self.record_failure()
            return None
        self._failures = 0
        self._connection = Connection(self.network, self.process, server)
        return self._connection

    def record_failure(self) -> None:
        """Wait longer before the next attempt to connect."""
        backoff = _BACKOFF_SECONDS[min(self._failures, len(_BACKOFF_SECONDS) - 1)]
        self._failures += 1
        self._retry_at = self.network.scheduler.now + backoff

    def close(self) -> None:
        self._closed = True
        for call in list(self.calls):
            call.end(grpc.StatusCode.CANCELLED, "Channel closed!", tell=True)

    def unary_unary(self, path: str, **codecs: Any) -> Callable[..., Any]:
        return _Unary(self, path, codecs)

    def stream_unary(self, path: str, **codecs: Any) -> Callable[..., Any]:
        serialize = codecs["request_serializer"]

        def call(requests: Any, timeout: float | None = None) -> Any:
            data = [serialize(each) for each in requests]
            return ClientCall(self, path, codecs, data, timeout).result()

        return call

    def unary_stream(self, path: str, **codecs: Any) -> Callable[..., Any]:
        serialize = codecs["request_serializer"]

        def call(request: Any, timeout: float | None = None) -> Any:
            return ClientCall(self, path, codecs, serialize(request), timeout)

        return call

    def stream_stream(self, path: str, **codecs: Any) -> Callable[..., Any]:
        serialize = codecs["request_serializer"]

        def call(requests: Any, timeout: float | None = None) -> Any:
            made = ClientCall(self, path, codecs, b"", timeout)
            self.process.spawn(lambda: made.send_all(requests, serialize), f"send {path}")
            return made

        return call


class _Unary:
    """A method with one request and one response."""

    def __init__(self, channel: SimChannel, path: str, codecs: Any) -> None:
        self._channel, self._path, self._codecs = channel, path, codecs

    def __call__(self, request: Any, timeout: float | None = None) -> Any:
        return self.future(request, timeout).result()

    def future(self, request: Any, timeout: float | None = None) -> ClientCall:
        """Begin a call."""
        data = self._codecs["request_serializer"](request)
        return ClientCall(self._channel, self._path, self._codecs, data, timeout)


class ClientCall(grpc.Call):
    """The caller's end of a call."""

    def __init__(
        self, channel: SimChannel, path: str, codecs: Any, data: Any, timeout: float | None
    ) -> None:
        self._channel, self._path = channel, path
        self._scheduler = channel.network.scheduler
        self._decode = codecs["response_deserializer"]
        self._received: deque[bytes] = deque()
        self._waiters: deque[tuple[Task, int]] = deque()
        self._status: tuple[Any, str, Any] | None = None
        self._remote: Any = None  # the server's end
        self._connection = channel.connect()
        channel.calls[self] = None
        if timeout is not None:
            self._scheduler.after(timeout, self._expire)
        connection = self._connection
        if connection is None:
            self._scheduler.after(channel.network.delay(), self._refused)
            return
        connection.client_calls[self] = None
        connection.send(True, lambda: self._arrive(connection, data), len(data))
        self._scheduler.preempt()

    def _refused(self) -> None:
        address = self._channel.address
        self.end(grpc.StatusCode.UNAVAILABLE, f"failed to connect to {address}: Connection refused")

    def _arrive(self, connection: Connection, data: Any) -> None:
        if self._status is None:
            self._remote = connection.server.accept(self, connection, self._path, data)

    def send_all(self, requests: Any, serialize: Callable[[Any], bytes]) -> None:
        """Send a stream of requests, in a task of its own."""
        for request in requests:
            connection = self._connection
            if self._status is not None or connection is None:
                return
            data = serialize(request)
            connection.send(True, lambda data=data: self._arrive_more(data), len(data))
            self._scheduler.preempt()

    def _arrive_more(self, data: bytes) -> None:
        if self._status is None and self._remote is not None:
            self._remote.receive(data)

    def _expire(self) -> None:
        self.end(grpc.StatusCode.DEADLINE_EXCEEDED, "Deadline Exceeded", tell=True)

    # Called from the network.

    def receive(self, data: bytes) -> None:
        """Take a response that has arrived."""
        if self._status is None:
            self._received.append(data)
            wake_one(self._waiters)

    def receive_status(self, code: Any, details: str, trailing: Any) -> None:
        """Take the status that has arrived, behind all responses."""
        if self._status is None:
            self._finish(code, details, trailing)

    def connection_broke(self, reason: str) -> None:
        if self._status is None and self._scheduler.random() < 0.5:
            self._received.clear()  # gRPC may drop what the application has not read
        self._channel.record_failure()
        self.end(grpc.StatusCode.UNAVAILABLE, reason)

    def end(self, code: Any, details: str, tell: bool = False) -> None:
        """End the call at this end; `tell` cancels the other end."""
        if self._status is not None:
            return
        if code is not grpc.StatusCode.UNAVAILABLE:
            self._received.clear()
        connection = self._connection
        if tell and connection is not None:
            connection.send(True, self._cancel_remote)
        self._finish(code, details, ())

    def _cancel_remote(self) -> None:
        if self._remote is not None:
            self._remote.cancelled_by_peer()

    def _finish(self, code: Any, details: str, trailing: Any) -> None:
        self._status = code, details, trailing
        self._channel.calls.pop(self, None)
        if self._connection is not None:
            self._connection.client_calls.pop(self, None)
        while wake_one(self._waiters):
            pass

    # Called by the application.

    def cancel(self) -> bool:
        self.end(grpc.StatusCode.CANCELLED, "Locally cancelled by application!", tell=True)
        return True

    def result(self, timeout: float | None = None) -> Any:
        """Return the one response. The call has a timeout of its own, so waits need none."""
        for response in self:
            while self._status is None:
                wait_for(self._waiters, None, f"call {self._path}")
            if self._status[0] is not grpc.StatusCode.OK:
                raise SimRpcError(*self._status)
            return response
        raise SimRpcError(grpc.StatusCode.INTERNAL, "no response")

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        while not self._received:
            status = self._status
            if status is not None:
                if status[0] is grpc.StatusCode.OK:
                    raise StopIteration
                raise SimRpcError(*status)
            wait_for(self._waiters, None, f"call {self._path}")
        data = self._received.popleft()
        connection, remote = self._connection, self._remote
        if connection is not None and remote is not None:
            connection.send(True, lambda: remote.credit(len(data)))
        return self._decode(data)

    def code(self) -> Any:
        return self._status[0] if self._status else None

    def details(self) -> Any:
        return self._status[1] if self._status else None

    def trailing_metadata(self) -> Any:
        return self._status[2] if self._status else ()

    def is_active(self) -> bool:
        return self._status is None

    def _unused(self, *_: Any) -> Any:
        raise NotImplementedError

    initial_metadata = time_remaining = _unused
    add_callback: Any = _unused
