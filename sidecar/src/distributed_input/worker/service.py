"""The gRPC service of the worker: describes datasets and streams splits."""

from __future__ import annotations

import functools
import threading
import time
from collections import Counter
from collections.abc import Generator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.api.stalls import stall_text
from distributed_input.link.blocks import direct_sender
from distributed_input.link.blocks.direct_sender import TransferListener
from distributed_input.link.blocks.open_streams import OpenStreams, StreamCounters
from distributed_input.link.blocks.sender import Connection
from distributed_input.rows.blocks import RowBlock
from distributed_input.runtime import logs, metrics
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.dataset_failures import DatasetFailures
from distributed_input.worker.datasets.bad_records import SkippedRecords
from distributed_input.worker.datasets.describe import DescribeCache, describe, import_module
from distributed_input.worker.datasets.split_opener import SplitOpener
from distributed_input.worker.host.memory import buffer_bytes
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.states.state_files import StateFiles
from distributed_input.worker.store.block_store import BlockStore
from distributed_input.worker.streams.running_split import OwnThread, RunningSplit, is_python
from distributed_input.worker.streams.shared_producers import SharedProducers
from distributed_input.worker.streams.shared_stream import SharedStream
from distributed_input.worker.streams.split_runner import SplitRunner
from distributed_input.worker.watched_describe import WatchedDescribe

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
        crashes: splits that ended the process before this one.
        store: computed splits in a folder; None: all rows are computed.

    Attributes:
        streams: the open streams.
        transfers: accepts direct connections; None: all rows use gRPC.
        reports: set if a heartbeat must be sent at once.
    """

    def __init__(
        self,
        splits: SplitOpener,
        parallelism: int,
        max_streams: int,
        share_bytes: int,
        relaxed: bool = False,
        state_files: StateFiles | None = None,
        crashes: Sequence[types_pb2.StalledSplit] = (),
        store: BlockStore | None = None,
    ) -> None:
        self.streams = OpenStreams(max_streams)
        self._buffer_bytes = buffer_bytes()
        describing = functools.partial(
            describe, relaxed=relaxed, room=self._buffer_bytes, keep=splits.keep
        )
        self._describe = WatchedDescribe(import_module, describing)
        self._jobs = DescribeCache(self._describe)
        self._pool = ComputePool(parallelism)
        self._states = SplitStates(state_files)
        self.reports = threading.Event()
        self._skipped = SkippedRecords(self.reports)
        self._runner = SplitRunner(splits, self._states, self._is_crowded, self._skipped)
        self._store = store
        self._failures = DatasetFailures()
        self._crashes = list(crashes)
        self._producers = SharedProducers(self._start, self._pool, share_bytes)
        self.transfers: TransferListener | None = None
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        self._logged: set[tuple[str, int, int, int]] = set()  # stalled splits

    # RPCs.

    def Describe(self, request: worker_pb2.DescribeRequest, _context: Any) -> Any:  # noqa: N802
        """Complete the draft of a job; see the proto."""
        with self._failures.recorded(request.job):
            job = self._jobs.job(request.job, request.consumer)
        _log.info(
            "described",
            job=job.name,
            rows=job.global_batch_size,
            partitions=job.partitions,
            splits=job.num_splits,
            split_bytes=job.split_bytes,
            warnings=list(job.warnings),
        )
        return worker_pb2.DescribeResponse(job=job)

    def Connect(  # noqa: N802
        self, requests: Iterator[worker_pb2.ConnectRequest], context: Any
    ) -> Iterator[bytes]:
        """Yield the encoded blocks of all splits that a sidecar reads; see the proto."""
        connection = Connection(functools.partial(SharedStream, self._producers), self.streams)
        with self._lock:
            self._connections.add(connection)
        try:
            yield from direct_sender.serve(connection, requests, context, self.transfers)
        finally:
            with self._lock:
                self._connections.discard(connection)
            connection.close()

    def _start(self, request: worker_pb2.StreamRequest, counters: StreamCounters) -> RunningSplit:
        kind = OwnThread if is_python(request.job) else RunningSplit
        return kind(request, functools.partial(self._run, request, counters))

    def _run(
        self, request: worker_pb2.StreamRequest, counters: StreamCounters
    ) -> Generator[RowBlock, None, None]:
        compute, sources = self._runner.blocks, self._runner.sources
        with self._failures.recorded(request.job):
            if self._store is None:
                yield from compute(request, counters)
            else:
                yield from self._store.blocks(request, counters, compute, sources)

    def _is_crowded(self) -> bool:
        return self._pool.wanted > self._pool.permits

    def hand_back(self) -> None:
        """End all streams, so that sidecars continue with other workers."""
        with self._lock:
            connections = list(self._connections)
        for connection in connections:
            connection.fail_all(
                UnavailableError("the worker is leaving. Continue on another worker.")
            )

    def flush(self, timeout: float) -> None:
        """Wait for splits that are being stored, at most `timeout` seconds."""
        if self._store is not None:
            self._store.flush(timeout)

    def resize(self, parallelism: int, may_lend: bool) -> None:
        """Change the parallelism; see `ComputePool.resize`."""
        self._pool.resize(parallelism, may_lend)

    # Load.

    def totals(self) -> StreamCounters:
        """Return the counters of all streams since the start.

        Rows that several jobs receive count once for each job. Replayed rows count once. The busy
        time counts the CPUs that were in use, at most `parallelism` at a time: splits that wait at
        the same time do not add up. Otherwise autoscaling would add workers for waits.
        """
        return replace(
            self.streams.totals(),
            busy_seconds=self._pool.busy_seconds,
            replayed_rows=self._producers.replayed_rows,
        )

    def load(self) -> dispatcher_pb2.WorkerHeartbeatRequest:
        """Return a heartbeat with the current load."""
        totals = self.totals()
        stalled = self._describe.stalled() + self._producers.stalled()
        self._log_stalled(stalled)
        return dispatcher_pb2.WorkerHeartbeatRequest(
            draining=self.streams.draining.is_set(),
            open_streams=self.streams.count,
            rows=totals.rows,
            busy_seconds=totals.busy_seconds,
            parallelism=self._pool.permits,
            permit_seconds=self._pool.permit_seconds,
            capacity=self._pool.capacity,
            buffer_bytes=self._buffer_bytes,
            cpu_seconds=time.process_time(),
            stalled=self._crashes + stalled,
            failure=self._failures.last(),
            skipped=self._skipped.report(),
        )

    def record_received(self, beat: dispatcher_pb2.WorkerHeartbeatRequest) -> None:
        """Record that the dispatcher has received a heartbeat."""
        self._skipped.confirm(beat.skipped)

    def _log_stalled(self, stalled: Sequence[types_pb2.StalledSplit]) -> None:
        """Log each stalled split once."""
        keys = {(one.dataset, one.epoch, one.split, one.row) for one in stalled}
        for one in stalled:
            if (one.dataset, one.epoch, one.split, one.row) not in self._logged:
                _log.warning("no progress", detail=stall_text(one))
        self._logged = keys

    def samples(self) -> list[metrics.Sample]:
        """Return the metrics."""
        totals = self.totals()
        direct = self.transfers.sent_bytes if self.transfers is not None else 0
        stored = self._store.counts if self._store is not None else Counter[str]()
        return [
            metrics.sample(metrics.WORKER_ROWS, totals.rows),
            metrics.sample(metrics.WORKER_BYTES, totals.bytes),
            metrics.sample(metrics.WORKER_DIRECT_BYTES, direct),
            metrics.sample(metrics.WORKER_BUSY_SECONDS, totals.busy_seconds),
            metrics.sample(metrics.WORKER_STALL_SECONDS, totals.stall_seconds),
            metrics.sample(metrics.WORKER_REPLAYED_ROWS, totals.replayed_rows),
            metrics.sample(metrics.WORKER_SHARED_ROWS, totals.shared_rows),
            metrics.sample(metrics.WORKER_SHARED_BYTES, self._producers.nbytes),
            metrics.sample(metrics.WORKER_OPEN_STREAMS, self.streams.count),
            metrics.sample(metrics.WORKER_PARALLELISM, self._pool.permits),
            metrics.sample(metrics.WORKER_DRAINING, self.streams.draining.is_set()),
            *(
                metrics.sample(metrics.WORKER_FAILURES, count, error=name)
                for name, count in self.streams.failures.items()
            ),
            *(
                metrics.sample(metrics.WORKER_STATES, count, event=event)
                for event, count in self._states.counts.items()
            ),
            *(
                metrics.sample(metrics.WORKER_STORE, stored[what], what=what)
                for what in ("rows", "bytes", "stored", "damaged")
            ),
        ]
