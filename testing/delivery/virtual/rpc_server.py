"""gRPC servers in memory, which run the handlers that `link.stubs.service_handler` makes."""

from __future__ import annotations

from collections import deque
from typing import Any

import grpc

from testing.delivery.virtual.network import Connection, Network
from testing.delivery.virtual.primitives import current, wait_for, wake_one
from testing.delivery.virtual.rpc import ClientCall
from testing.delivery.virtual.scheduler import SimProcess, Task


class _Details:
    invocation_metadata = ()

    def __init__(self, method: str) -> None:
        self.method = method


class SimServer:
    """A server of one process at an address, with the methods of `link.serving.Server`."""

    def __init__(
        self, network: Network, process: SimProcess, address: str, handlers: list[Any]
    ) -> None:
        self.process, self.address = process, address
        self.accepting = True
        self.healthy = True
        self.calls: dict[ServerCall, None] = {}
        self._network, self._handlers = network, handlers
        self._methods: dict[str, Any] = {}
        network.servers[address] = self
        process.endpoints[self] = None

    def accept(self, client: ClientCall, connection: Connection, path: str, data: Any) -> Any:
        """Start a call that has arrived. Return None if the server stops."""
        if not self.accepting:
            refused = grpc.StatusCode.UNAVAILABLE, "GOAWAY received", ()
            connection.send(False, lambda: client.receive_status(*refused))
            return None
        call = ServerCall(self, client, connection, path)
        connection.server_calls[call] = None
        self.calls[call] = None
        call.task = self.process.spawn(lambda: call.run(data), path.rpartition("/")[2])
        return call

    def method(self, path: str) -> Any:
        """Return the handler of a method, or None."""
        if path not in self._methods:
            found = (handler.service(_Details(path)) for handler in self._handlers)
            self._methods[path] = next((one for one in found if one is not None), None)
        return self._methods[path]

    def set_healthy(self, healthy: bool) -> None:
        self.healthy = healthy

    def stop(self, grace: float) -> None:
        """Reject new calls, and cancel calls that still run after `grace` seconds."""
        self.process_died()
        deadline = current.scheduler.now + grace
        while self.calls and current.scheduler.now < deadline:
            current.scheduler.sleep(0.05)
        for call in list(self.calls):
            call.finish(grpc.StatusCode.UNAVAILABLE, "Server shutting down", ())

    def process_died(self) -> None:
        self.accepting = False
        if self._network.servers.get(self.address) is self:
            del self._network.servers[self.address]

    def process_paused(self) -> None:
        pass

    process_resumed = process_paused


class _Abort(Exception):
    """Raised by `context.abort`."""


class ServerCall:
    """The server's end of a call, and the context that handlers get."""

    def __init__(
        self, server: SimServer, client: ClientCall, connection: Connection, path: str
    ) -> None:
        self.task: Task | None = None
        self._server, self._client, self._connection = server, client, connection
        self._path = path
        self._scheduler = current.scheduler
        self._active = True
        self._unread = 0
        self._waiters: deque[tuple[Task, int]] = deque()
        self._code: Any = None
        self._details = ""
        self._trailing: Any = ()
        self._window = client._channel.window
        self._requests: deque[bytes] = deque()
        self._readers: deque[tuple[Task, int]] = deque()
        self._callbacks: list[Any] = []

    # The task.

    def run(self, data: Any) -> None:
        """Run the handler and send what it returns."""
        handler = self._server.method(self._path)
        if handler is None:
            self.finish(grpc.StatusCode.UNIMPLEMENTED, "Method not found!", ())
            return
        try:
            if handler.request_streaming and handler.response_streaming:
                request: Any = self._received(handler.request_deserializer)
                behaviour = handler.stream_stream
            elif handler.request_streaming:
                request = iter([handler.request_deserializer(each) for each in data])
                behaviour = handler.stream_unary
            else:
                request = handler.request_deserializer(data)
                behaviour = handler.unary_stream if handler.response_streaming else None
                behaviour = behaviour or handler.unary_unary
            result = behaviour(request, self)
            responses = result if handler.response_streaming else (result,)
            for response in responses:
                if not self._send(handler.response_serializer(response)):
                    break
            del result, responses
            self.finish(grpc.StatusCode.OK, "", ())
        except Exception as error:  # noqa: BLE001  as gRPC does
            code = self._code or grpc.StatusCode.UNKNOWN
            details = self._details if self._code else f"Exception calling application: {error}"
            self.finish(code, details, self._trailing)

    def _received(self, deserialize: Any) -> Any:
        """Yield the requests of the client until the call ends."""
        while self._active:
            if self._requests:
                yield deserialize(self._requests.popleft())
            else:
                wait_for(self._readers, None, f"requests of {self._path}")
        if self._code is None:
            raise grpc.RpcError("the call has ended")

    def _send(self, data: bytes) -> bool:
        client, connection = self._client, self._connection
        while self._active and self._unread and self._unread + len(data) > self._window:
            wait_for(self._waiters, None, f"send {self._path}")
        if not self._active:
            return False
        self._unread += len(data)
        connection.send(False, lambda: client.receive(data), len(data))
        self._scheduler.preempt()
        return self._active

    def finish(self, code: Any, details: str, trailing: Any) -> None:
        """Send the status."""
        if self._active:
            client = self._client
            self._connection.send(False, lambda: client.receive_status(code, details, trailing))
        self._stop()

    # Called from the network.

    def receive(self, data: bytes) -> None:
        """Take a further request that has arrived."""
        self._requests.append(data)
        wake_one(self._readers)

    def credit(self, size: int) -> None:
        """Let the handler send more."""
        self._unread -= size
        wake_one(self._waiters)

    def cancelled_by_peer(self) -> None:
        """End the call because the client cancelled it."""
        self._stop()

    def connection_broke(self, reason: str) -> None:
        self._stop()

    def _stop(self) -> None:
        self._active = False
        self._server.calls.pop(self, None)
        self._connection.server_calls.pop(self, None)
        for waiters in (self._waiters, self._readers):
            while wake_one(waiters):
                pass
        callbacks, self._callbacks = self._callbacks, []
        for callback in callbacks:
            self._server.process.spawn(callback, "callback")

    # The context.

    def add_callback(self, callback: Any) -> bool:
        if self._active:
            self._callbacks.append(callback)
        return self._active

    def is_active(self) -> bool:
        return self._active

    def code(self) -> Any:
        return self._code

    def set_trailing_metadata(self, metadata: Any) -> None:
        self._trailing = tuple(metadata)

    def abort(self, code: Any, details: str) -> None:
        self._code, self._details = code, details
        raise _Abort(details)

    def cancel(self) -> None:
        self.finish(grpc.StatusCode.CANCELLED, "cancelled", ())

    def peer(self) -> str:
        return "virtual"

    def auth_context(self) -> Any:
        return {}

    def invocation_metadata(self) -> Any:
        return ()
