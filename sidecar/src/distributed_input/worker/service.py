"""The gRPC service of the worker: describes datasets and streams splits."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import Any

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.protocol import check_protocol
from distributed_input.api.stalls import stall_text
from distributed_input.runtime import logs, metrics
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.describe_cache import DescribeCache
from distributed_input.worker.datasets.split_opener import SplitOpener
from distributed_input.worker.load import WorkerLoad
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.states.state_files import StateFiles
from distributed_input.worker.streams.counters import StreamCounters, sum_counters
from distributed_input.worker.streams.fair_semaphore import FairSemaphore
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.split_runner import SplitRunner

_log = logs.get("worker.service")


class WorkerService:
    """The service of proto/worker.proto.

    Args:
        splits: opens splits.
        parallelism: number of CPUs that may produce elements at the same time, over all streams.
        max_streams: maximum number of open streams. More are refused; sidecars then use another
            worker.
        share_bytes: maximum bytes of rows kept for other jobs; see `SharedProducers`.
        relaxed: random values may differ when a split runs again.
        state_files: saved states of splits in a folder; None: only sidecars keep them.

    Attributes:
        draining: set when new streams are refused.
        handing_back: set when open streams end at their next block.
        idle: set while there are no open streams.
    """

    def __init__(
        self,
        splits: SplitOpener,
        parallelism: int,
        max_streams: int,
        share_bytes: int,
        relaxed: bool = False,
        state_files: StateFiles | None = None,
    ) -> None:
        self._jobs = DescribeCache(functools.partial(describe, relaxed=relaxed))
        self._cpus = FairSemaphore(parallelism)
        self._states = SplitStates(state_files)
        runner = SplitRunner(splits, self._states)
        self._producers = SharedProducers(runner.blocks, self._cpus, share_bytes)
        self._max_streams = max_streams
        self._lock = threading.Lock()
        self._open: dict[int, StreamCounters] = {}
        self._closed = StreamCounters()  # sum of the closed streams' counters
        self._streams = 0
        self._failures: Counter[str] = Counter()
        self._logged: set[tuple[str, int, int, int]] = set()  # stalled splits
        self.draining = threading.Event()
        self.handing_back = threading.Event()
        self.idle = threading.Event()
        self.idle.set()

    # RPCs.

    def Describe(self, request: worker_pb2.DescribeRequest, _context: Any) -> Any:  # noqa: N802
        """Complete the draft of a job; see the proto."""
        job = self._jobs.job(request.job)
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
        """Yield the encoded blocks of a split; see the proto."""
        check_protocol(request.protocol, "the sidecar")
        key, counters = self._enter()
        try:
            for data in self._producers.blocks(request, counters):
                if self.handing_back.is_set():
                    raise UnavailableError("the worker is leaving. Continue on another worker.")
                ready = time.perf_counter()
                yield data
                counters.stall_seconds += time.perf_counter() - ready
        except Exception as error:
            if not self.handing_back.is_set():
                with self._lock:
                    self._failures[type(error).__name__] += 1
            raise
        finally:
            self._leave(key, counters)

    def resize(self, parallelism: int, may_lend: bool) -> None:
        """Change the parallelism; see `FairSemaphore.resize`."""
        self._cpus.resize(parallelism, may_lend)

    # Load.

    def totals(self) -> StreamCounters:
        """Return the counters of all streams since the start.

        Rows that several jobs receive count once for each job. Replayed rows count once. The busy
        time counts the CPUs that were in use, at most `parallelism` at a time: splits that wait at
        the same time do not add up. Otherwise autoscaling would add workers for waits.
        """
        produced = self._producers.totals()
        with self._lock:
            sent = sum_counters([self._closed, *self._open.values()])
        return replace(
            sent, busy_seconds=self._cpus.busy_seconds, replayed_rows=produced.replayed_rows
        )

    def load(self) -> WorkerLoad:
        """Return the current load, for a heartbeat."""
        totals = self.totals()
        stalled = self._producers.stalled()
        self._log_stalled(stalled)
        return WorkerLoad(
            draining=self.draining.is_set(),
            open_streams=self.open_streams,
            rows=totals.rows,
            busy_seconds=totals.busy_seconds,
            parallelism=self._cpus.permits,
            permit_seconds=self._cpus.permit_seconds,
            capacity=self._cpus.capacity,
            stalled=stalled,
        )

    def _log_stalled(self, stalled: Sequence[types_pb2.StalledSplit]) -> None:
        """Log each stalled split once."""
        keys = {(one.dataset, one.epoch, one.split, one.row) for one in stalled}
        for one in stalled:
            if (one.dataset, one.epoch, one.split, one.row) not in self._logged:
                _log.warning("a split makes no progress", detail=stall_text(one))
        self._logged = keys

    @property
    def open_streams(self) -> int:
        """Return the number of open streams."""
        with self._lock:
            return len(self._open)

    def samples(self) -> list[metrics.Sample]:
        """Return the metrics."""
        totals = self.totals()
        with self._lock:
            failures = dict(self._failures)
        return [
            metrics.sample(metrics.WORKER_ROWS, totals.rows),
            metrics.sample(metrics.WORKER_BYTES, totals.bytes),
            metrics.sample(metrics.WORKER_BUSY_SECONDS, totals.busy_seconds),
            metrics.sample(metrics.WORKER_STALL_SECONDS, totals.stall_seconds),
            metrics.sample(metrics.WORKER_REPLAYED_ROWS, totals.replayed_rows),
            metrics.sample(metrics.WORKER_SHARED_ROWS, totals.shared_rows),
            metrics.sample(metrics.WORKER_SHARED_BYTES, self._producers.nbytes),
            metrics.sample(metrics.WORKER_OPEN_STREAMS, self.open_streams),
            metrics.sample(metrics.WORKER_PARALLELISM, self._cpus.permits),
            metrics.sample(metrics.WORKER_DRAINING, self.draining.is_set()),
            *(
                metrics.sample(metrics.WORKER_FAILURES, count, error=name)
                for name, count in failures.items()
            ),
            *(
                metrics.sample(metrics.WORKER_STATES, count, event=event)
                for event, count in self._states.counts.items()
            ),
        ]

    def _enter(self) -> tuple[int, StreamCounters]:
        with self._lock:
            if self.draining.is_set() or len(self._open) >= self._max_streams:
                raise UnavailableError(
                    "the worker is draining"
                    if self.draining.is_set()
                    else f"the worker has {self._max_streams} streams open (--max-streams). A job "
                    "needs one for every partition, and more to read ahead. Add workers, or lower "
                    "spec.partitions or spec.sidecar.readAhead."
                )
            self._streams += 1
            counters = self._open[self._streams] = StreamCounters()
            self.idle.clear()
            return self._streams, counters

    def _leave(self, key: int, counters: StreamCounters) -> None:
        with self._lock:
            del self._open[key]
            self._closed = sum_counters([self._closed, counters])
            if not self._open:
                self.idle.set()
