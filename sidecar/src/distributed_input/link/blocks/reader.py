"""The connection to one worker, which carries all splits that this sidecar reads from it."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterator
from typing import Any, Protocol

import grpc

from distributed_input.api import errors
from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.link import statuses
from distributed_input.link.blocks import frames
from distributed_input.link.blocks.direct_reader import DirectTransfer
from distributed_input.link.blocks.frames import Frame
from distributed_input.link.errors import internal_error
from distributed_input.link.stubs import Stub
from distributed_input.rows.blocks import RowBlock
from distributed_input.runtime import logs

_log = logs.get("sidecar.connection")


class BlockReceiver(Protocol):
    """The reader of a stream. The methods are called by the thread that reads the connection."""

    def receive(self, call: SplitCall, block: RowBlock) -> None:
        """Take the next block of a call. It has not ended before the block with `last`."""

    def fail(self, call: SplitCall, error: DistributedInputError, explained: bool) -> None:
        """Take the error that ended a call.

        Args:
            call: the call.
            error: the error.
            explained: whether the worker itself reported it. If not, the connection failed.
        """


class WorkerConnection:
    """Opens streams of a worker on one call. Thread-safe.

    It ends with the first error of the connection, which all of its streams get.

    Attributes:
        is_broken: whether the connection has ended. Streams can then only be opened on another one.
        received_at: monotonic time at which something was last received.
    """

    def __init__(self, stub: Stub, worker_id: str, direct: DirectTransfer | None = None) -> None:
        self.is_broken = False
        self.received_at = float("-inf")
        self._direct = direct
        self._worker_id = worker_id
        self._streams: dict[int, SplitCall] = {}
        self._numbers = itertools.count(1)
        self._pending = worker_pb2.ConnectRequest()
        self._credits: dict[int, int] = {}
        self._has_pending = False
        self._error: DistributedInputError = UnavailableError("")
        self._changed = threading.Condition()
        self._call: Any = stub.Connect(self._requests())
        name = f"worker-{worker_id}"
        threading.Thread(target=self._read, name=name, daemon=True).start()

    def open(
        self, request: worker_pb2.StreamRequest, credit: int, receiver: BlockReceiver
    ) -> SplitCall:
        """Open a stream, without waiting for the worker."""
        with self._changed:
            number = next(self._numbers)
            call = SplitCall(self, number, receiver)
            if self.is_broken:
                # In a thread of its own, because the caller may hold a lock.
                failed = (call, self._error, False)
                threading.Thread(target=receiver.fail, args=failed, daemon=True).start()
                return call
            self._streams[number] = call
            self._pending.open.add(stream=number, request=request, credit=credit)
            self._notify()
        return call

    def grant(self, number: int, credit: int) -> None:
        """Let the worker send more rows of a stream."""
        with self._changed:
            if number in self._streams:
                self._credits[number] = credit
                self._notify()

    def close(self, number: int) -> None:
        """Close a stream."""
        with self._changed:
            if self._streams.pop(number, None) is None:
                return
            self._credits.pop(number, None)
            if not self._cancel_open(number):
                self._pending.close.append(number)
                self._notify()

    def abandon(self, error: DistributedInputError) -> None:
        """End the connection of a worker that cannot be reached. Its streams get the error."""
        calls = self._break(error)
        self._call.cancel()  # the thread that reads ends, and closes the direct connection
        for call in calls:
            call.receiver.fail(call, error, False)

    def _break(self, error: DistributedInputError) -> list[SplitCall]:
        """Let streams be opened elsewhere. Return those that are open."""
        with self._changed:
            self._error = self._error if self.is_broken else error
            self.is_broken = True
            calls = list(self._streams.values())
            self._streams.clear()
            self._changed.notify_all()
        return calls

    def _cancel_open(self, number: int) -> bool:
        """Return whether the worker does not know a stream, and will not."""
        unsent = self._pending.open
        at = next((at for at, one in enumerate(unsent) if one.stream == number), None)
        if at is not None:
            del unsent[at]
        return at is not None

    def _notify(self) -> None:
        if not self._has_pending:
            self._has_pending = True
            self._changed.notify()

    def _requests(self) -> Iterator[worker_pb2.ConnectRequest]:
        """Yield what the worker has to know, all that is new in one message."""
        while True:
            with self._changed:
                while not (self.is_broken or self._has_pending):
                    self._changed.wait()
                if self.is_broken:
                    return
                request, self._pending = self._pending, worker_pb2.ConnectRequest()
                for number, credit in self._credits.items():
                    request.credits.add(stream=number, credit=credit)
                self._credits.clear()
                self._has_pending = False
            yield request

    # The thread that reads.

    def _read(self) -> None:
        explained = False
        try:
            self._receive_all()
            error: DistributedInputError = UnavailableError(
                f"worker {self._worker_id}: it ended the connection"
            )
        except grpc.RpcError as broken:
            explained = statuses.is_explained(broken)
            error = statuses.from_rpc_error(broken, f"worker {self._worker_id}")
            broken.with_traceback(None)  # it refers to the last message
        except (UnavailableError, ValueError) as broken:
            explained = True  # the worker is there
            error = UnavailableError(f"worker {self._worker_id}: {broken}")
        except Exception as bug:  # noqa: BLE001  it must be reported to the user
            _log.exception("reading a connection failed", worker=self._worker_id)
            error = internal_error(bug)
        if explained and self._direct is not None and not self.is_broken:
            # Either end may notice first that the network passes no rows beside gRPC.
            self._direct.record_failure()
        self._end(error, explained)

    def _receive_all(self) -> None:
        """Receive messages until the call ends, over gRPC and then the direct connection."""
        for data in self._call:
            if frames.has_blocks(data):
                self._deliver_all(data)
                continue
            control, direct = frames.decode_control(data), self._direct
            if direct is None:
                continue
            if control.moved:
                direct.receive_all(self._deliver_all)
            elif control.HasField("offer"):
                self._call.add_done_callback(lambda _, ended=direct.end: ended())
                direct.connect(control.offer)

    def _deliver_all(self, data: bytes | memoryview) -> None:
        self.received_at = time.monotonic()
        for frame in frames.decode(data):
            self._deliver(frame)

    def _deliver(self, frame: Frame) -> None:
        call = self._streams.get(frame.stream)
        if call is None:
            return  # closed meanwhile
        if frame.error is not None:
            self._streams.pop(frame.stream, None)
            message = f"worker {self._worker_id}: {frame.error.message}"
            call.receiver.fail(call, errors.from_kind(frame.error.kind, message), True)
            return
        for block in frame.blocks:
            if block.last:  # the worker closes the stream itself
                self._streams.pop(frame.stream, None)
            call.receiver.receive(call, block)

    def _end(self, error: DistributedInputError, explained: bool) -> None:
        calls = self._break(error)
        try:
            self._call.cancel()
            if self._direct is not None:
                self._direct.close()
        finally:
            for call in calls:
                call.receiver.fail(call, error, explained)


class SplitCall:
    """An open stream of a worker. Its methods do not wait."""

    def __init__(self, connection: WorkerConnection, number: int, receiver: BlockReceiver) -> None:
        self.receiver = receiver
        self._connection, self._number = connection, number

    def grant(self, credit: int) -> None:
        """Let the worker send rows until it has sent `credit` bytes since the stream was opened."""
        self._connection.grant(self._number, credit)

    def close(self) -> None:
        """Close the stream. What arrives later must be ignored."""
        self._connection.close(self._number)
