"""Workers that break, hang or send something wrong."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import numpy as np

from distributed_input.api.errors import DistributedInputError, UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from tests.unit.distributed_input.sidecar.streams.streaming import ROWS, SECONDS
from tests.unit.distributed_input.sidecar.system import Worker

DIGESTS = np.arange(1, ROWS + 1, dtype=np.uint64)


def prefix_of(rows: int) -> Prefix:
    """Return the first `rows` rows of the split."""
    return Prefix().extend(DIGESTS[:rows])


def block_of(request: worker_pb2.StreamRequest, rows: int, **fields: Any) -> bytes:
    """Return a block of the first `rows` rows that are requested."""
    first = request.start_row
    data = np.arange(first, first + rows, dtype=np.int64).view(np.uint8)
    digests, before = DIGESTS[first : first + rows], prefix_of(first).digest
    return blocks.encode(RowBlock(first, rows, (data,), digests, prefix_digest=before, **fields))


class ScriptedWorker(Worker):
    """Answers each call with some rows and then an error, as scripted, and later calls correctly.

    Attributes:
        requests: all requests.
    """

    def __init__(self, *script: tuple[int, DistributedInputError], seconds: float = 0.0) -> None:
        super().__init__(ROWS)
        self._script, self._seconds = list(script), seconds
        self.requests: list[worker_pb2.StreamRequest] = []

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        self.requests.append(request)
        if not self._script:
            yield from super().Stream(request, context)
            return
        rows, error = self._script.pop(0)
        if rows:
            yield block_of(request, rows)
        threading.Event().wait(self._seconds)
        raise error


class StatefulWorker(Worker):
    """Breaks three calls: after rows and a state, at once, and after the report of a replay.

    Attributes:
        requests: all requests.
    """

    def __init__(self) -> None:
        super().__init__(ROWS)
        self.requests: list[worker_pb2.StreamRequest] = []

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        self.requests.append(request)
        nothing = DIGESTS[:0]
        if len(self.requests) == 1:
            yield block_of(request, 3)
            yield blocks.encode(RowBlock(0, 0, (), nothing, resume_token=b"state"))
        elif len(self.requests) == 3:
            yield blocks.encode(RowBlock(0, 0, (), nothing, replayed=2))
        elif len(self.requests) > 3:
            yield from super().Stream(request, context)
            return
        raise UnavailableError("the worker is leaving")


class DifferentWorker(Worker):
    """Reports that the rows before the first one differ from the prefix."""

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        yield block_of(request, 2, prefix_differs=True)
        yield from super().Stream(request, context)


class ShortWorker(Worker):
    """Sends `rows` rows and breaks the first stream; then its split ends after `later` rows."""

    def __init__(self, rows: int, later: int) -> None:
        super().__init__(ROWS)
        self._first, self._later = rows, later

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        if not request.start_row:
            yield block_of(request, self._first)
            raise UnavailableError("the worker is leaving")
        nothing = np.zeros(0, np.uint8)
        differs = request.prefix_rows > self._later
        yield blocks.encode(
            RowBlock(
                self._later,
                0,
                (nothing,),
                nothing.view(np.uint64),
                last=True,
                prefix_digest=prefix_of(self._later).digest,
                prefix_differs=differs,
            )
        )


class HangingWorker(Worker):
    """Sends the first rows of a call and then nothing until `released`."""

    def __init__(self, rows: int = 0) -> None:
        super().__init__(ROWS)
        self._first = rows
        self.called = threading.Event()
        self.released = threading.Event()

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        if self._first:
            yield block_of(request, self._first)
        self.called.set()
        self.released.wait(3 * SECONDS)
        if not self._first:
            yield from super().Stream(request, context)


class ReplayingWorker(Worker):
    """Reports `steps` replayed rows in each call and breaks it, and answers later calls."""

    def __init__(self, steps: list[int], seconds: float) -> None:
        super().__init__(ROWS)
        self._steps, self._seconds = steps, seconds

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        if not self._steps:
            yield from super().Stream(request, context)
            return
        nothing = np.zeros(0, np.uint64)
        for replayed in range(1, self._steps.pop(0) + 1):
            threading.Event().wait(self._seconds)
            yield blocks.encode(RowBlock(0, 0, (), nothing, replayed=replayed))
        raise UnavailableError("the worker is leaving")


class InvalidWorker(Worker):
    """Answers the first call with the given packets, and later calls correctly."""

    def __init__(self, answer: list[bytes]) -> None:
        super().__init__(ROWS)
        self._answers = [answer]

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, context: Any
    ) -> Iterator[bytes]:
        yield from self._answers.pop() if self._answers else super().Stream(request, context)
