"""A connection of a worker that is given as a function from a request to its blocks."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable, Iterator
from typing import Any

import grpc

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link import statuses
from distributed_input.link.blocks import frames
from distributed_input.link.blocks.frames import Frame
from distributed_input.rows import blocks
from distributed_input.rows.blocks import varint

Stream = Callable[[worker_pb2.StreamRequest, Any], Iterator[bytes]]
Requests = Iterator[worker_pb2.ConnectRequest]


def serve_connection(stream: Stream, requests: Requests, context: Any) -> Iterator[bytes]:
    """Yield the messages of a connection. Each stream runs in a thread, as far as it has credit."""
    ready: queue.SimpleQueue[bytes | None] = queue.SimpleQueue()
    context.add_callback(lambda: ready.put(None))
    connection = _Connection(stream, context, ready.put)
    threading.Thread(target=connection.read, args=(requests,), daemon=True).start()
    yield from iter(ready.get, None)


def message_with(number: int, block: bytes) -> bytes:
    """Return a message with an encoded block, which may be invalid."""
    end = worker_pb2.StreamBlock(stream=number).SerializeToString()
    frame = b"\x7a" + varint(len(block)) + block + end
    return b"\x0a" + varint(len(frame)) + frame


class _Connection:
    def __init__(self, stream: Stream, context: Any, send: Callable[[bytes | None], None]) -> None:
        self._stream, self._context, self._send = stream, context, send
        self._credits: dict[int, int] = {}  # of the open streams
        self._changed = threading.Condition()

    def read(self, requests: Requests) -> None:
        """Handle the requests of the sidecar until they end."""
        try:
            for request in requests:
                self._handle(request)
        except Exception:  # noqa: BLE001  gRPC raises no other class if the sidecar has gone
            pass
        with self._changed:
            self._credits.clear()
            self._changed.notify_all()
        self._send(None)

    def _handle(self, request: worker_pb2.ConnectRequest) -> None:
        with self._changed:
            for number in request.close:
                self._credits.pop(number, None)
            for one in request.open:
                self._credits[one.stream] = one.credit
                args = (one.stream, one.request)
                threading.Thread(target=self._run, args=args, daemon=True).start()
            for credit in request.credits:
                if credit.stream in self._credits:
                    self._credits[credit.stream] = credit.credit
            self._changed.notify_all()

    def _run(self, number: int, request: worker_pb2.StreamRequest) -> None:
        sent, has_ended = 0, False
        try:
            for data in self._stream(request, self._context):
                cost, has_ended = _cost(data)
                if cost and not self._wait_for_credit(number, sent):
                    return
                sent += cost
                self._send(message_with(number, data))
            if not has_ended:
                raise UnavailableError("it ended the stream within the split")
        except DistributedInputError as error:
            kind, text = statuses.explain(error, "a stream")
            failure = worker_pb2.StreamError(kind=kind, message=text)
            self._send(frames.encode([Frame(number, error=failure)]))
        except grpc.RpcError:  # a test ends the call
            self._send(None)

    def _wait_for_credit(self, number: int, sent: int) -> bool:
        """Wait until a stream may send a block. Return whether it is still open."""
        with self._changed:
            self._changed.wait_for(lambda: self._credits.get(number, sent + 1) > sent)
            return number in self._credits


def _cost(data: bytes) -> tuple[int, bool]:
    """Return what a block costs, and whether it is the last one. Invalid blocks are free."""
    try:
        block = blocks.decode(data)
    except ValueError:
        return 0, False
    return block.cost, block.last
