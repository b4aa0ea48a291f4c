"""One job of an input, as this sidecar serves it."""

from __future__ import annotations

import contextlib
import functools
import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path

import grpc

from distributed_input.api import sidecar_memory
from distributed_input.api.config import InputConfig
from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    RetryableError,
    UnavailableError,
)
from distributed_input.api.files import SLOTS_PREFIX
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.api.stalls import dataset_name
from distributed_input.link import statuses
from distributed_input.link.credentials import Credentials
from distributed_input.order.job_config import job_of_config
from distributed_input.order.jobs import full_name, is_completed, set_run
from distributed_input.order.mixture import lists_of
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.inputs.dispatcher_link import DispatcherLink
from distributed_input.sidecar.inputs.job_sessions import JobSessions
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.read_ahead import ReadAhead, turns_of, useful_workers
from distributed_input.sidecar.streams.stream_context import StreamStats

_log = logs.get("sidecar.job")
_DESCRIBE_SECONDS = 120.0  # building a dataset may read much data
_REPORT_SECONDS = 5.0  # between reports of a description that takes long
_LEAVE_SECONDS = 30.0  # limit of the wait for a dispatcher that is away when a job is closed
_SMALL_ROW_BYTES = 64 << 10  # rows up to this size do not reduce the automatic read-ahead
_LAST_SECONDS = 1.0  # at least, so that a call that begins just before the deadline can succeed


class JobInput:
    """One job of a DistributedInput, for one rank of the trainer: one consumer.

    It has the job's configuration, slots, dispatcher link and sessions.

    Args:
        name: name of the DistributedInput.
        spec: its configuration.
        address: host:port of its dispatcher.
        credentials: credentials of the input.
        folder: folder shared with trainers.
        ranks: ranks of the trainer.
        rank: rank in this trainer of the process that reads.
        job: name of the job, or "" for the input's own job.
        available_bytes: memory for the job's streams and the process. None: no limit.
        pod: id of this pod, or "" if it has no worker of its own.

    Attributes:
        consumer: index of this consumer.
        consumers: number of consumers.
        config: the job, without the fields that depend on the dataset.
        from_trainer: whether the trainer brings the dataset.
        timeout_seconds: spec.sidecar.timeoutSeconds.
        streams: counters of the job's streams.
        slots: shared memory for batches.
        sessions: sessions of the trainers that read the job.
        link: link to the dispatcher.
    """

    def __init__(
        self,
        name: str,
        spec: InputConfig,
        address: str,
        credentials: Credentials,
        folder: Path,
        ranks: TrainerRanks,
        rank: int = 0,
        job: str = "",
        available_bytes: int | None = None,
        pod: str = "",
    ) -> None:
        self.name, self.job, self.rank = name, job, rank
        self.consumer, self.consumers = ranks.consumer(rank), ranks.count
        self.config = job_of_config(full_name(name, ranks.job(job)), spec)
        self.from_trainer = not self.config.HasField("entry_point")
        self.timeout_seconds = float(spec.sidecar.timeout_seconds)
        self.streams = StreamStats()
        self.slots = SlotPool(
            folder / f"{SLOTS_PREFIX}{uuid.uuid4().hex}", spec.sidecar.buffer_bytes
        )
        self._read_ahead = spec.sidecar.read_ahead
        self._available_bytes = available_bytes
        self.sessions = JobSessions(self.config.name, self.slots, self.streams)
        may_transfer = spec.sidecar.transfer != "grpc"
        self.link = DispatcherLink(
            address,
            credentials,
            self.consumer,
            self.consumers,
            self.sessions,
            pod,
            may_transfer,
            ranks.each,
        )

    def open_job(
        self, draft: types_pb2.Job, dataset: bytes, report: Callable[[str], None] = lambda _: None
    ) -> types_pb2.Job:
        """Register the job and return it, complete.

        A worker describes the dataset of an entry point. Otherwise this trainer or the trainer of
        consumer 0 brings the dataset.

        Args:
            draft: fields that the trainer sets. `run` is empty unless it continues a run.
            dataset: a serialized GraphDataset, or b"".
            report: called with what the trainer waits for.

        Raises:
            DistributedInputError: the job is refused, or `timeout_seconds` have passed.
        """
        deadline = time.monotonic() + self.timeout_seconds
        if self.from_trainer:
            if not dataset and self.consumer == 0:
                raise ConfigError(
                    f"input {self.name} names no dataset, and the trainer passed none. Set "
                    "spec.dataset.entryPoint, or pass dataset_fn to distribute() or dataset()"
                )
            if not dataset:
                return self.link.wait_for_job(self.config.name, draft.run, deadline)
            if hashlib.sha256(dataset).hexdigest() != draft.dataset_id:
                raise ConfigError(
                    "the dataset file that the trainer wrote is damaged. Check that the volume "
                    "shared with the sidecar is not full"
                )
            return self.link.register(draft, dataset, deadline)
        config = types_pb2.Job()
        config.CopyFrom(self.config)
        if draft.global_batch_size:
            config.global_batch_size = draft.global_batch_size
        # The files may have changed since the run started: its trainers agree on one definition.
        known = self.link.running_job(config.name)
        if known is None or not is_completed(config, known):
            known = self._describe(config, deadline, report)
        set_run(known, draft)
        return self.link.register(known, b"", deadline)

    def _describe(
        self, draft: types_pb2.Job, deadline: float, report: Callable[[str], None]
    ) -> types_pb2.Job:
        """Return the job as a worker completes it. Ask another worker if one is not available."""
        cause: Exception | str = "none is registered. Check that the workers are running"
        request = worker_pb2.DescribeRequest(job=draft, consumer=self.link.incarnation)
        while True:
            if crash := self.link.pool.description_crash(draft, request.consumer):
                raise DatasetFnError(crash)
            stub = self.link.pool.any_stub()
            if stub is not None:
                try:
                    left = max(_LAST_SECONDS, deadline - time.monotonic())
                    call = stub.Describe.future(request, timeout=min(_DESCRIBE_SECONDS, left))
                    return self._described(call, dataset_name(draft), report)
                except grpc.RpcError as failed:
                    error = statuses.from_rpc_error(failed, "a worker")
                    if not isinstance(error, RetryableError):
                        raise error from failed
                    cause = error
            elif self.link.refused is not None:
                raise self.link.refused
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"no worker of input {self.name} has described its dataset for "
                    f"{self.timeout_seconds:.0f} s (spec.sidecar.timeoutSeconds): "
                    f"{self.link.pool.slow_description(dataset_name(draft)) or cause}"
                )
            self.streams.waiting["describe"] = "a worker"
            self.link.pool.wait(0.3)
            self.streams.waiting.pop("describe", None)

    def _described(
        self,
        call: grpc.Future[worker_pb2.DescribeResponse],
        dataset: str,
        report: Callable[[str], None],
    ) -> types_pb2.Job:
        """Wait for a description, and report one that takes long."""
        try:
            while True:
                with contextlib.suppress(grpc.FutureTimeoutError):
                    return call.result(timeout=_REPORT_SECONDS).job
                if slow := self.link.pool.slow_description(dataset):
                    report(f"the description of the dataset: {slow}")
        finally:
            call.cancel()  # if the trainer is gone

    def row_source(self, job: types_pb2.Job) -> RowSource:
        """Return where the rows of the job come from.

        Raises:
            ConfigError: the memory limit has no room for the job's rows.
        """
        parallel = job.mode == types_pb2.PARALLEL_EPOCHS
        own = sidecar_memory.own_partitions(lists_of(job), self.consumers, parallel=parallel)
        most = self._most_read_ahead(job, own)
        available = sidecar_memory.default_bytes(own, most)
        if self._available_bytes is not None:
            available = min(available, self._available_bytes)
        ahead = ReadAhead(
            most,
            automatic=self._read_ahead is None,
            partitions=lists_of(job) * (self.consumers if parallel else 1),
            room=lambda: self.link.pool.room(job.split_bytes),
            least=int(job.split_bytes_at_most),
            step_rows=(job.global_batch_size or job.partitions) // self.consumers,
        )
        return RowSource(
            job,
            self.link.pool,
            self.link.partition_facts,
            self.link,
            self.streams,
            ahead,
            self.timeout_seconds,
            functools.partial(
                sidecar_memory.queue_bytes, most_streams=own * (1 + most), available=available
            ),
            sidecar_memory.head_bytes(own, available),
            useful_workers(job, own, most, self._read_ahead),
        )

    def _most_read_ahead(self, job: types_pb2.Job, partitions: int) -> int:
        """Return how many splits each of our partitions may open ahead.

        Raises:
            ConfigError: the memory limit has no room for the job's rows.
        """
        columns = ElementSpec.from_json(job.row_spec).columns
        row_bytes = sum(column.row_bytes or 0 for column in columns)
        available, fixed = self._available_bytes, self._read_ahead
        least = 1 if fixed is None else fixed
        if available is not None:
            least = self._fitting_read_ahead(row_bytes, partitions, least, available)
        if fixed is not None or not least:
            return least
        most = sidecar_memory.most_read_ahead(partitions)
        if available is None:
            available = sidecar_memory.needed_bytes(partitions, most, _SMALL_ROW_BYTES)
        most = min(most, turns_of(job) - 1)
        return max(least, sidecar_memory.fitting_read_ahead(partitions, most, row_bytes, available))

    def _fitting_read_ahead(
        self, row_bytes: int, partitions: int, read_ahead: int, available: int
    ) -> int:
        """Return the largest number of splits up to `read_ahead` that fits.

        Raises:
            ConfigError: there is no room even without further splits.
        """
        need = sidecar_memory.needed_bytes(partitions, read_ahead, row_bytes)
        if need <= available:
            return read_ahead
        if not sidecar_memory.holds_one_row(partitions, row_bytes, available):
            raise ConfigError(
                f"input {self.name}: rows of {row_bytes:,} bytes from {partitions} partitions need "
                f"{_mebibytes(need)} MiB besides the buffer, and the sidecar's memory limit leaves "
                f"{max(0, available) >> 20} MiB. Set spec.sidecar.resources.limits.memory to at "
                f"least {_mebibytes(need + self.slots.size)}Mi, or lower spec.partitions"
            )
        fitting = sidecar_memory.fitting_read_ahead(partitions, read_ahead, row_bytes, available)
        _log.warning(
            "memory limit is low: fewer splits are opened ahead",
            input=self.config.name,
            read_ahead=fitting,
            needed_bytes=need,
            available_bytes=available,
        )
        return fitting

    def leave(self, cancelled: threading.Event) -> None:
        """Close the link once the dispatcher has the facts, which other consumers may need."""
        self.link.publish_facts(_LEAVE_SECONDS, cancelled)
        self.link.stop()

    def close(self) -> None:
        """Close the current session, the link and the slots."""
        self.sessions.close()
        self.link.stop()
        self.slots.close()


def _mebibytes(size: int) -> int:
    return -(-size // (1 << 20))
