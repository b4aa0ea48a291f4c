"""The streams of a worker, as a sidecar opens them, and those of workers of earlier versions."""

from __future__ import annotations

import contextlib
import threading
from collections import deque
from typing import Any, Protocol

import grpc

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.runtime import logs, statuses
from distributed_input.runtime.stubs import Stub, end_stream
from distributed_input.sidecar.errors import internal_error

_log = logs.get("sidecar.calls")


class SplitCall(Protocol):
    """An open stream of a worker. Its methods do not wait."""

    def grant(self, credit: int) -> None:
        """Let the worker send rows until it has sent `credit` bytes since the stream was opened."""

    def close(self) -> None:
        """Close the stream. What arrives later must be ignored."""


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


class WorkerLink(Protocol):
    """Opens streams of one worker."""

    @property
    def is_broken(self) -> bool:
        """Return whether the connection has failed. Use another link then."""

    def open(
        self, request: worker_pb2.StreamRequest, credit: int, receiver: BlockReceiver
    ) -> SplitCall:
        """Open a stream, without waiting for the worker."""


class SplitCalls:
    """Opens streams of a worker that lacks the method Connect: a call and a thread for each.

    Args:
        stub: the worker.
        worker_id: id of the worker, for errors.
    """

    is_broken = False

    def __init__(self, stub: Stub, worker_id: str) -> None:
        self._stub, self._worker_id = stub, worker_id

    def open(
        self, request: worker_pb2.StreamRequest, credit: int, receiver: BlockReceiver
    ) -> SplitCall:
        """Open a stream, without waiting for the worker."""
        return _Call(self._stub, self._worker_id, request, credit, receiver)


class _Call:
    """A stream with a call of its own. A full queue stops reading, and flow control the worker."""

    def __init__(
        self,
        stub: Stub,
        worker_id: str,
        request: worker_pb2.StreamRequest,
        credit: int,
        receiver: BlockReceiver,
    ) -> None:
        self._worker_id, self._credit, self._receiver = worker_id, credit, receiver
        self._received = 0
        self._closed = self._finished = False
        self._changed = threading.Condition()
        self._call: Any = stub.Stream(request)
        name = f"split-{request.split}"
        threading.Thread(target=self._read, name=name, daemon=True).start()

    def grant(self, credit: int) -> None:
        with self._changed:
            self._credit = credit
            self._changed.notify()

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._changed.notify()
        if not self._finished:
            self._call.cancel()

    def _read(self) -> None:
        try:
            self._receive_all()
            if not (self._closed or self._finished):
                self._fail(ValueError("it ended the stream within the split"))
        except grpc.RpcError as broken:
            explained = statuses.is_explained(broken)
            error = statuses.from_rpc_error(broken, f"worker {self._worker_id}")
            # Its traceback refers to it again, and to the last block. Both would stay in memory
            # until the garbage collector runs.
            broken.with_traceback(None)
            self._receiver.fail(self, error, explained)
        except ValueError as broken:
            self._fail(broken)
        except Exception as bug:  # noqa: BLE001  it must be reported to the user
            _log.exception("reading a stream failed", worker=self._worker_id)
            self._receiver.fail(self, internal_error(bug), True)
        finally:
            _finish_call(self._call, self._finished)

    def _receive_all(self) -> None:
        """Receive blocks until the stream ends or is closed."""
        while self._wait_for_credit():
            data = next(self._call, None)
            if data is None:
                return
            block = blocks.decode(data)
            self._received += block.cost
            self._finished = block.last
            self._receiver.receive(self, block)

    def _wait_for_credit(self) -> bool:
        """Wait until a block may be received. Return whether the stream is still open."""
        with self._changed:
            while self._received >= self._credit and not (self._closed or self._finished):
                self._changed.wait()
            return not (self._closed or self._finished)

    def _fail(self, error: ValueError) -> None:
        failure = UnavailableError(f"worker {self._worker_id}: {error}")
        self._receiver.fail(self, failure, True)


def _finish_call(call: Any, finished: bool) -> None:
    """Read a call to its end, which frees its memory. Cancel it if rows are left."""
    if finished:
        with contextlib.suppress(grpc.RpcError):
            deque(call, maxlen=0)
    end_stream(call)
