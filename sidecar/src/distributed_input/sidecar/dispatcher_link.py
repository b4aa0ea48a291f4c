"""The sidecar's link to an input's dispatcher: membership, facts, the job, the statistics.

Everything here may be away for a while: streams go on with the workers last known, and what
was registered is registered again once a dispatcher answers that does not know it.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import grpc

from distributed_input.api.errors import (
    DistributedInputError,
    FencedError,
    JobConflictError,
    RetryableError,
    UnavailableError,
)
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL
from distributed_input.runtime import logs, statuses
from distributed_input.runtime.credentials import Credentials
from distributed_input.runtime.serving import open_channel
from distributed_input.runtime.stubs import Stub
from distributed_input.sidecar.steps.facts import Facts
from distributed_input.sidecar.streams.pool import WorkerPool

_log = logs.get("sidecar.link")
_CALL_SECONDS = 3.0
_GOODBYE_SECONDS = 1.0
_CHUNK_BYTES = 1 << 20
_REJOIN_SECONDS = 15.0  # a new dispatcher's empty list is not believed for so long


@dataclass
class ConsumerStats:
    """What the trainer of this consumer has seen; see `ConsumerHeartbeatRequest`."""

    epoch: int = 0
    rows: int = 0
    batches: int = 0
    bytes: int = 0
    wait_seconds: float = 0.0
    wall_seconds: float = 0.0
    buffer_fill: float = 0.0
    useful_workers: int = 0
    finished: bool = False
    waiting_for: str = ""
    mismatches: int = 0

    def after(self, earlier: ConsumerStats) -> ConsumerStats:
        """These, with the counts of an earlier connection added."""
        return replace(
            self,
            rows=self.rows + earlier.rows,
            batches=self.batches + earlier.batches,
            bytes=self.bytes + earlier.bytes,
            wait_seconds=self.wait_seconds + earlier.wait_seconds,
            wall_seconds=self.wall_seconds + earlier.wall_seconds,
        )


@dataclass
class _Registered:
    job: types_pb2.Job | None = None
    dataset: bytes = b""
    at: str = ""  # the id of the dispatcher that has it


class DispatcherLink:
    """One input's heartbeat thread and what it learns."""

    def __init__(
        self, address: str, credentials: Credentials, consumer: int, consumers: int
    ) -> None:
        self.pool = WorkerPool(credentials)
        self.facts = Facts()
        self.incarnation = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self.consumer, self.consumers = consumer, consumers
        self.stats: Callable[[], ConsumerStats] = ConsumerStats
        self.own_facts: Callable[[], list[dispatcher_pb2.PartitionFact]] = list
        self.on_fenced: Callable[[DistributedInputError], None] = lambda _: None
        self.connected = False
        self.refused: DistributedInputError | None = None  # why no heartbeat is accepted
        self._address = address
        self._channel = open_channel(address, credentials)
        service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
        self._stub = Stub(self._channel, service)
        self._registered = _Registered()
        self._dispatcher = ""
        self._dispatcher_since = 0.0
        self._heard = time.monotonic()
        self._stop = threading.Event()
        self._soon = threading.Event()
        self._beats = threading.Condition()  # of the next two
        self._begun = self._answered = 0
        self._thread = threading.Thread(target=self._beat_forever, name="link", daemon=True)

    def start(self) -> None:
        """Begin heartbeats."""
        self._thread.start()

    def stop(self) -> None:
        """End heartbeats, saying that this consumer is done, and close all channels."""
        self._stop.set()
        self._soon.set()
        self._thread.join(_CALL_SECONDS + 1)
        if self.connected:
            # Other consumers may wait for what was learnt since the last heartbeat, and the next
            # run for the job's name.
            with contextlib.suppress(grpc.RpcError):
                self._beat(_GOODBYE_SECONDS, leaving=True)
        self.pool.close()
        self._channel.close()

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the dispatcher last answered, at first since the start."""
        return time.monotonic() - self._heard

    def beat_soon(self) -> None:
        """Ask for a heartbeat now rather than at the end of the interval."""
        self._soon.set()

    def tell(self, seconds: float, cancelled: threading.Event) -> bool:
        """Have the dispatcher know all facts of now; whether it said so within `seconds`."""
        deadline = time.monotonic() + seconds
        with self._beats:
            wanted = self._begun + 1  # one under way may have been filled in already
            self.beat_soon()
            while self._answered < wanted and not cancelled.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._beats.wait(min(left, 0.1))
            return self._answered >= wanted

    # Jobs and datasets.

    def register(self, job: types_pb2.Job, dataset: bytes, deadline: float) -> types_pb2.Job:
        """Register a job, and its dataset where the trainer brought one.

        Raises:
            JobConflictError: another job has this name.
            UnavailableError: no dispatcher answered before `deadline` (monotonic seconds).
        """
        if self._registered.job is not None and self._registered.job != job:
            self._give_up_job()
        at = self._dispatcher  # there may be another by the time it is registered
        registered = self._retry(lambda: self._register(job, dataset), deadline, "register")
        self._registered = _Registered(registered, dataset, at)
        self.beat_soon()
        return registered

    def wait_for_job(self, name: str, deadline: float) -> types_pb2.Job:
        """The job that another consumer registers."""
        self._give_up_job()  # it may have changed
        request = dispatcher_pb2.GetJobRequest(name=name)
        job: types_pb2.Job = self._retry(
            lambda: self._stub.GetJob(request, timeout=_CALL_SECONDS).job,
            deadline,
            f"wait for consumer 0 to register job {name}",
        )
        self._registered = _Registered(job)
        self.beat_soon()
        return job

    def _give_up_job(self) -> None:
        """Hold no job, or another could not be registered under its name; and say so."""
        if self._registered.job is not None:
            self._registered = _Registered()
            self.tell(_CALL_SECONDS, self._stop)
            self.facts.clear()

    def _register(self, job: types_pb2.Job, dataset: bytes) -> types_pb2.Job:
        if dataset:
            self._stub.PutDataset(_chunks(job.dataset_id, dataset), timeout=60)
        request = dispatcher_pb2.RegisterJobRequest(job=job)
        registered: types_pb2.Job = self._stub.RegisterJob(request, timeout=_CALL_SECONDS).job
        return registered

    def _retry(
        self, call: Callable[[], types_pb2.Job], deadline: float, doing: str
    ) -> types_pb2.Job:
        while True:
            try:
                return call()
            except grpc.RpcError as broken:
                error = statuses.from_rpc_error(broken, f"dispatcher {self._address}: {doing}")
                if not isinstance(error, RetryableError):
                    raise error from broken
                if time.monotonic() > deadline:
                    raise UnavailableError(
                        f"{error} (gave up after spec.sidecar.timeoutSeconds)"
                    ) from broken
            if self._stop.wait(0.1):
                raise UnavailableError("the sidecar is stopping")

    # Heartbeats.

    def _beat_forever(self) -> None:
        interval = 1.0
        while not self._stop.is_set():
            try:
                interval = self._beat()
                if not self.connected:
                    _log.info("dispatcher answers", address=self._address)
                self.connected, self.refused = True, None
            except grpc.RpcError as broken:
                error = statuses.from_rpc_error(broken, f"dispatcher {self._address}: heartbeat")
                refused = None if isinstance(error, RetryableError) else error
                if self.connected or str(refused) != str(self.refused):
                    _log.warning("no heartbeat", cause=str(error))
                self.connected, self.refused = False, refused
                interval = 0.3
                if isinstance(error, FencedError | JobConflictError):
                    self.on_fenced(error)
            self._soon.wait(interval)
            # Even when much is asked for, the dispatcher gets at most 20 calls a second.
            if self._soon.is_set() and not self._stop.wait(0.05):
                self._soon.clear()

    def _beat(self, timeout: float = _CALL_SECONDS, leaving: bool = False) -> float:
        with self._beats:
            self._begun += 1
            number = self._begun
        stats = self.stats()
        held = self._registered
        job = held.job
        answer = self._stub.ConsumerHeartbeat(
            dispatcher_pb2.ConsumerHeartbeatRequest(
                job=job.name if job is not None else "",
                index=self.consumer,
                count=self.consumers,
                incarnation=self.incarnation,
                facts=self.own_facts(),
                epoch=stats.epoch,
                rows=stats.rows,
                batches=stats.batches,
                wait_seconds=stats.wait_seconds,
                wall_seconds=stats.wall_seconds,
                buffer_fill=stats.buffer_fill,
                replay_mismatches=stats.mismatches,
                finished=leaving or stats.finished,
                useful_workers=stats.useful_workers,
                protocol=PROTOCOL,
                waiting_for=stats.waiting_for,
            ),
            timeout=timeout,
        )
        now = self._heard = time.monotonic()
        if answer.dispatcher_id != self._dispatcher:
            self._dispatcher_since = now if self._dispatcher else float("-inf")
            self._dispatcher = answer.dispatcher_id
        self._learn_workers(answer.workers, now)
        self.facts.learn(answer.facts)
        if answer.fenced:
            self.on_fenced(
                FencedError(
                    f"this trainer was consumer {self.consumer} of {self.consumers} and stops "
                    f"here: {answer.fenced_by or 'another took its place'}"
                )
            )
        if not answer.job_unknown:
            with self._beats:
                self._answered = number
                self._beats.notify_all()
        # Also where another consumer was quicker: it may not have had the dataset.
        if answer.job_unknown or held.at != self._dispatcher:
            self._register_again(held)
        return float(answer.interval_seconds) or 1.0

    def _learn_workers(self, workers: Iterable[dispatcher_pb2.WorkerInfo], now: float) -> None:
        if now - self._dispatcher_since < _REJOIN_SECONDS:
            # It has just started; workers that have not found it yet still serve.
            self.pool.add(workers)
        else:
            self.pool.update(workers)

    def _register_again(self, held: _Registered) -> None:
        job = held.job
        if job is None or held is not self._registered:  # given up meanwhile
            return
        try:
            self._register(job, held.dataset)
            held.at = self._dispatcher
            _log.info("registered again", job=job.name, dispatcher=self._dispatcher)
        except grpc.RpcError as broken:
            error = statuses.from_rpc_error(broken, f"registering job {job.name} again")
            if not isinstance(error, RetryableError):
                self.on_fenced(error)


def _chunks(dataset_id: str, data: bytes) -> Iterator[dispatcher_pb2.DatasetChunk]:
    for start in range(0, len(data), _CHUNK_BYTES):
        yield dispatcher_pb2.DatasetChunk(
            dataset_id=dataset_id if not start else "", data=data[start : start + _CHUNK_BYTES]
        )
