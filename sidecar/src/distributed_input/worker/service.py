"""The worker's gRPC service: describe a dataset, stream a split."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator
from dataclasses import replace
from typing import Any

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import worker_pb2
from distributed_input.api.protocol import check_protocol
from distributed_input.runtime import logs, metrics
from distributed_input.worker.datasets import sources
from distributed_input.worker.datasets.describe_cache import Described
from distributed_input.worker.datasets.sources import Source
from distributed_input.worker.node import NODE
from distributed_input.worker.streams.batch_sizer import Pace, tried
from distributed_input.worker.streams.fair_semaphore import Turns
from distributed_input.worker.streams.shared import Shared
from distributed_input.worker.streams.stream import Work, split_blocks, total
from distributed_input.worker.streams.window import Made

_log = logs.get("worker.service")


class WorkerService:
    """Serves proto/worker.proto.

    Args:
        made: builds the splits' sources.
        parallelism: elements made at once, over all streams.
        max_streams: open at once; more are refused, and go to another worker.
        share_bytes: of rows kept for other jobs of the same dataset; see `Shared`.
    """

    def __init__(
        self, made: sources.Sources, parallelism: int, max_streams: int, share_bytes: int
    ) -> None:
        self._sources = made
        self._described = Described(sources.describe)
        self._shared = Shared(self._made, Turns(parallelism), share_bytes)
        self._max_streams = max_streams
        self._lock = threading.Lock()
        self._open: dict[int, Work] = {}
        self._closed = Work()
        self._streams = 0
        self._pace = Pace()
        self._failures: Counter[str] = Counter()
        self.draining = threading.Event()  # no new streams
        self.handing_back = threading.Event()  # open ones end at their next block
        self.idle = threading.Event()
        self.idle.set()

    # RPCs.

    def Describe(self, request: worker_pb2.DescribeRequest, _context: Any) -> Any:  # noqa: N802
        """See the proto."""
        job = self._described.job(request.job)
        _log.info(
            "described",
            job=job.name,
            rows=job.global_batch_size,
            partitions=job.partitions,
            splits=job.num_splits,
            warnings=list(job.warnings),
        )
        return worker_pb2.DescribeResponse(job=job)

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        """See the proto. Messages are sent as they are encoded: see `blocks`."""
        check_protocol(request.protocol, "the sidecar")
        key, work = self._enter()
        try:
            for data in self._shared.blocks(request, work):
                if self.handing_back.is_set():
                    raise UnavailableError("the worker is leaving: go on elsewhere")
                made = time.perf_counter()
                yield data
                work.stall_seconds += time.perf_counter() - made
        except Exception as error:
            if not self.handing_back.is_set():
                with self._lock:
                    self._failures[type(error).__name__] += 1
            raise
        finally:
            self._leave(key, work)

    def _made(self, request: worker_pb2.StreamRequest, work: Work) -> Generator[Made, None, None]:
        """A split's blocks. The first takes the building of its dataset too: shuffles fill, files
        are listed. A turn is a whole block: handing over more often costs more threads' wake-ups
        than the work between them.
        """
        for made in split_blocks(request, self._source(request), NODE, work):
            if made.last and work.busy_seconds:
                self._pace.learn(request.job, work.rows / work.busy_seconds)
            yield made

    def _source(self, request: worker_pb2.StreamRequest) -> Source:
        """The split's elements, of as many rows as its dataset's pace allows."""
        rows = self._pace.rows(request.job)
        source = self._opened(request, rows)
        if not rows or self._pace.knows(request.job):
            return source
        source, rate = tried(source, rows)
        if rate is not None:
            self._pace.learn(request.job, rate)
            better = self._pace.rows(request.job)
            source = self._opened(request, better) if better != rows else source
        return source

    def _opened(self, request: worker_pb2.StreamRequest, rows: int) -> Source:
        return self._sources.open(request.job, request.seed, request.epoch, request.split, rows)

    # Load.

    def totals(self) -> Work:
        """Of all streams since the start: rows as sent, once for each job; the time it took to
        make them is that of one.
        """
        made = self._shared.totals()
        with self._lock:
            sent = total([self._closed, *self._open.values()])
        return replace(sent, busy_seconds=made.busy_seconds, replayed_rows=made.replayed_rows)

    @property
    def open_streams(self) -> int:
        """Streams that run now."""
        with self._lock:
            return len(self._open)

    def samples(self) -> list[metrics.Sample]:
        """The metrics."""
        work = self.totals()
        with self._lock:
            failures = dict(self._failures)
        return [
            metrics.sample(metrics.WORKER_ROWS, work.rows),
            metrics.sample(metrics.WORKER_BYTES, work.bytes),
            metrics.sample(metrics.WORKER_BUSY_SECONDS, work.busy_seconds),
            metrics.sample(metrics.WORKER_STALL_SECONDS, work.stall_seconds),
            metrics.sample(metrics.WORKER_REPLAYED_ROWS, work.replayed_rows),
            metrics.sample(metrics.WORKER_SHARED_ROWS, work.shared_rows),
            metrics.sample(metrics.WORKER_SHARED_BYTES, self._shared.nbytes),
            metrics.sample(metrics.WORKER_OPEN_STREAMS, self.open_streams),
            metrics.sample(metrics.WORKER_DRAINING, self.draining.is_set()),
            *(
                metrics.sample(metrics.WORKER_FAILURES, count, error=name)
                for name, count in failures.items()
            ),
        ]

    def _enter(self) -> tuple[int, Work]:
        with self._lock:
            if self.draining.is_set() or len(self._open) >= self._max_streams:
                raise UnavailableError(
                    "the worker is draining"
                    if self.draining.is_set()
                    else f"the worker has {self._max_streams} streams open (--max-streams): a job "
                    "needs one for every partition, and more to read ahead. Add workers, or lower "
                    "spec.partitions or spec.sidecar.readAhead"
                )
            self._streams += 1
            work = self._open[self._streams] = Work()
            self.idle.clear()
            return self._streams, work

    def _leave(self, key: int, work: Work) -> None:
        with self._lock:
            del self._open[key]
            self._closed = total([self._closed, work])
            if not self._open:
                self.idle.set()
