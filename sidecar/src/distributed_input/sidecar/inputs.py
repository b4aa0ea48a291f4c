"""One job of an input in this sidecar: its configuration, ring, link and reader."""

from __future__ import annotations

import hashlib
import json
import threading
import time
import uuid
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import grpc

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import (
    ConfigError,
    DistributedInputError,
    FencedError,
    RetryableError,
    UnavailableError,
)
from distributed_input.api.files import RING_PREFIX
from distributed_input.api.proto import dispatcher_pb2, types_pb2, worker_pb2
from distributed_input.assignment.jobs import full_name
from distributed_input.runtime import statuses
from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.delivery.slot_pool import Ring
from distributed_input.sidecar.dispatcher_link import ConsumerStats, DispatcherLink
from distributed_input.sidecar.streams.streams import StreamStats

if TYPE_CHECKING:
    from distributed_input.sidecar.delivery.connection import Connection

_DESCRIBE_SECONDS = 120.0  # building a dataset may read a good deal


class Input:
    """One job of a DistributedInput as this sidecar serves it, from the resolved spec.

    Args:
        name: of the resource.
        spec: its configuration.
        address: of the dispatcher, host:port.
        folder: where the ring goes.
        job: which of the input's; empty: its own.

    Raises:
        ConfigError: a field that this version does not understand.
    """

    def __init__(
        self,
        name: str,
        spec: InputConfig,
        address: str,
        credentials: Credentials,
        folder: Path,
        consumer: int,
        consumers: int,
        job: str = "",
    ) -> None:
        self.name, self.job = name, job
        self.config = job_of(full_name(name, job), spec)
        self.from_trainer = not self.config.HasField("entry_point")
        self.read_ahead = spec.sidecar.read_ahead
        self.timeout_seconds = float(spec.sidecar.timeout_seconds)
        self.streams = StreamStats()
        self.ring = Ring(folder / f"{RING_PREFIX}{uuid.uuid4().hex}", spec.sidecar.buffer_bytes)
        self.link = DispatcherLink(address, credentials, consumer, consumers)
        self.link.stats = self.stats
        self.link.own_facts = self._facts
        self.link.on_fenced = self._fenced
        self._consumer = consumer
        self._connection: Connection | None = None
        self._counting: list[Connection] = []  # not yet in `_before`
        self._before = ConsumerStats()  # what the connections that are closed have seen
        self._job: types_pb2.Job | None = None
        self._last_facts: Sequence[dispatcher_pb2.PartitionFact] = ()  # of the epoch before
        self._lock = threading.Lock()

    def attach(self, connection: Connection) -> None:
        """Make `connection` the reader; an older one is fenced off."""
        with self._lock:
            older, self._connection = self._connection, connection
            self._counting.append(connection)
        if older is not None:
            older.end(
                FencedError(
                    f"input {self.config.name} was opened again: one reader at a time. Close the "
                    "first, or give the second a job of its own: connect(..., job=...)"
                )
            )

    @property
    def idle(self) -> bool:
        """No trainer is connected."""
        return self._connection is None

    def detach(self, connection: Connection, facts: Sequence[dispatcher_pb2.PartitionFact]) -> None:
        """Forget a reader that is gone, but not the facts of its epoch."""
        self.remember(connection, facts)
        with self._lock:
            if self._connection is connection:
                self._connection = None
            if connection in self._counting:
                self._counting.remove(connection)
                self._before = connection.stats().after(self._before)

    def remember(
        self, connection: Connection, facts: Sequence[dispatcher_pb2.PartitionFact]
    ) -> None:
        """Keep telling of an epoch that is over for this reader: others may still be in it."""
        with self._lock:
            if self._connection is connection:
                self._last_facts = facts

    def open_job(self, draft: types_pb2.Job, dataset: bytes) -> types_pb2.Job:
        """The job, registered: described by a worker, brought by this trainer or by another's.

        Raises:
            DistributedInputError: it cannot be had before `timeout_seconds`, or is refused.
        """
        job = self._open_job(draft, dataset)
        if job != self._job:
            self._job, self._last_facts = job, ()
        return job

    def _open_job(self, draft: types_pb2.Job, dataset: bytes) -> types_pb2.Job:
        deadline = time.monotonic() + self.timeout_seconds
        if self.from_trainer:
            if not dataset and self._consumer == 0:
                raise ConfigError(
                    f"input {self.name} names no dataset, and the trainer brought none: set "
                    "spec.dataset.entryPoint, or pass dataset_fn to distribute() or dataset()"
                )
            if not dataset:
                return self.link.wait_for_job(self.config.name, deadline)
            if hashlib.sha256(dataset).hexdigest() != draft.dataset_id:
                raise ConfigError(
                    "the dataset that the trainer wrote is damaged: is the disk full?"
                )
            return self.link.register(draft, dataset, deadline)
        wanted = types_pb2.Job()
        wanted.CopyFrom(self.config)
        if draft.global_batch_size:
            wanted.global_batch_size = draft.global_batch_size
        return self.link.register(self._describe(wanted, deadline), b"", deadline)

    def _describe(self, draft: types_pb2.Job, deadline: float) -> types_pb2.Job:
        """What a worker says of an entry point; other workers are asked where one cannot."""
        cause: Exception | None = None
        while True:
            stub = self.link.pool.any_stub()
            if stub is not None:
                try:
                    request = worker_pb2.DescribeRequest(job=draft)
                    answer = stub.Describe(request, timeout=_DESCRIBE_SECONDS)
                    job: types_pb2.Job = answer.job
                    return job
                except grpc.RpcError as broken:
                    error = statuses.from_rpc_error(broken, "a worker")
                    if not isinstance(error, RetryableError):
                        raise error from broken
                    cause = error
            elif self.link.refused is not None:
                raise self.link.refused
            if time.monotonic() > deadline:
                raise UnavailableError(
                    f"no worker of input {self.name} could be asked about its dataset for "
                    f"{self.timeout_seconds:.0f} s (spec.sidecar.timeoutSeconds): "
                    f"{cause or 'none is registered: are the workers running?'}"
                )
            self.streams.waiting["describe"] = "a worker"
            self.link.pool.wait(0.3)
            self.streams.waiting.pop("describe", None)

    def _facts(self) -> list[dispatcher_pb2.PartitionFact]:
        connection = self._connection
        running = connection.facts() if connection is not None else []
        return [*self._last_facts, *running]

    def stats(self) -> ConsumerStats:
        """What the trainer of this consumer has seen, over all its connections."""
        with self._lock:
            stats = self._before
            for connection in self._counting:
                stats = connection.stats().after(stats)
            partitions = self._connection.partitions if self._connection is not None else 0
        return replace(
            stats,
            buffer_fill=self.ring.used / self.ring.size,
            useful_workers=partitions * (1 + self.read_ahead),
            waiting_for=", ".join(sorted(set(self.streams.waiting.copy().values()))),
            mismatches=self.streams.mismatches,
        )

    def _fenced(self, error: DistributedInputError) -> None:
        connection = self._connection
        if connection is None:
            return
        if isinstance(error, FencedError):
            connection.end(error)
        else:
            connection.fail(error)

    def close(self) -> None:
        """Drop the reader, the link and the ring."""
        connection = self._connection
        if connection is not None:
            connection.close()  # the trainer looks for the next sidecar
        self.link.stop()
        self.ring.close()


_MODES = {
    "distributed_epoch": types_pb2.DISTRIBUTED_EPOCH,
    "parallel_epochs": types_pb2.PARALLEL_EPOCHS,
}
_REMAINDERS = {"keep": types_pb2.KEEP, "drop": types_pb2.DROP, "pad": types_pb2.PAD}
_ORDERS = {"strict": types_pb2.STRICT, "any": types_pb2.ANY}


def job_of(name: str, spec: InputConfig) -> types_pb2.Job:
    """The job that a resolved spec asks for, as far as the spec alone says."""
    job = types_pb2.Job(
        name=name,
        seed=spec.seed,
        mode=_MODES[spec.processing_mode],
        num_splits=spec.num_splits or 0,
        partitions=spec.partitions or 0,
        global_batch_size=spec.batching.global_batch_size or 0,
        remainder=_REMAINDERS[spec.batching.remainder],
        order=_ORDERS[spec.order],
        epochs=spec.epochs or 0,
        strict=spec.determinism == "strict",
    )
    if spec.dataset.entry_point is not None:
        job.entry_point.target = spec.dataset.entry_point
        job.entry_point.args_json = json.dumps(dict(spec.dataset.args), sort_keys=True)
        job.entry_point.path = spec.dataset.source.path or ""
        content = job.entry_point.SerializeToString(deterministic=True)
        job.dataset_id = hashlib.sha256(content).hexdigest()
    return job
