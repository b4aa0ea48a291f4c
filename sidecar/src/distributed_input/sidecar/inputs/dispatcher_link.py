"""The link from one input to its dispatcher: workers, facts, the job and the statistics.

The dispatcher may be away for a while. Streams then use the workers that were last reported. The
link registers its job again when a dispatcher answers that does not have it.

This module is long because all of it is one state with one lock.
"""

from __future__ import annotations

import contextlib
import threading
import time
import uuid
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import NamedTuple, Protocol

import grpc

from distributed_input.api.errors import (
    DistributedInputError,
    FencedError,
    JobConflictError,
    ReplayError,
    RetryableError,
)
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.api.protocol import PROTOCOL, heartbeat_interval
from distributed_input.link.credentials import Credentials
from distributed_input.link.heartbeats.dispatcher_client import CALL_SECONDS, DispatcherClient
from distributed_input.order.jobs import is_same
from distributed_input.runtime import logs
from distributed_input.sidecar.inputs.job_sessions import ConsumerStats
from distributed_input.sidecar.steps.partition_facts import (
    LeftEpochError,
    OtherConsumerError,
    PartitionFacts,
)
from distributed_input.sidecar.streams.local_share import LocalSample, LocalShare
from distributed_input.sidecar.streams.worker_pool import WorkerPool

_log = logs.get("sidecar.link")
_STOP_SECONDS = 1.0
_REJOIN_SECONDS = 15.0  # workers missing from a new dispatcher's list are kept for this time
_OTHER_EPOCH_SECONDS = 10.0  # wait for a consumer in another epoch, before it is an error
_RETRY_SECONDS = 0.3
_MIN_INTERVAL_SECONDS = 0.05


class ReportingConsumer(Protocol):
    """The consumer that a link sends heartbeats for."""

    def stats(self) -> ConsumerStats:
        """Return the statistics of now."""

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return the facts about the consumer's partitions."""

    def join(self) -> None:
        """Count the trainer as one that reads, because its job has a run now."""

    def drop_facts(self) -> None:
        """Drop the facts of earlier sessions: they belong to another run."""

    def refuse(self, error: DistributedInputError) -> None:
        """Report to the trainer that the dispatcher refuses this consumer."""


class _Failed(NamedTuple):
    """Why another consumer will report no more facts about the epoch of this one.

    Attributes:
        number: number of the heartbeat that was answered.
        own: epoch of this consumer in it.
        other: epoch of the other consumer: a later one, which it reads, or that of its error.
        error: text for people.
    """

    number: int
    own: int
    other: int
    error: str


@dataclass
class _Registered:
    job: types_pb2.Job | None = None
    dataset: bytes = b""
    dispatcher_id: str = ""  # of the dispatcher that has the job


class DispatcherLink:
    """The thread that sends one input's heartbeats, and what the dispatcher has answered.

    Args:
        address: host:port of the dispatcher.
        credentials: credentials of the input.
        index: index of the consumer.
        count: number of consumers.
        consumer: source of statistics and facts.
        pod: id of this pod, or "" if it has no worker of its own.
        may_transfer: whether workers may send rows over direct connections.
        ranks: number of consumers of this pod, which share the pod's own worker.

    Attributes:
        pool: the workers that the dispatcher has reported.
        partition_facts: facts about the other consumers' partitions.
        incarnation: name of this start of the consumer, which sorts by time.
        connected: whether the last heartbeat was answered.
        refused: why the dispatcher refuses heartbeats, or None.
        contradiction: how the consumers of the run contradict each other; empty: they do not.
    """

    def __init__(
        self,
        address: str,
        credentials: Credentials,
        index: int,
        count: int,
        consumer: ReportingConsumer,
        pod: str = "",
        may_transfer: bool = True,
        ranks: int = 1,
    ) -> None:
        self.pool = WorkerPool(credentials, may_transfer)
        self.partition_facts = PartitionFacts()
        self.incarnation = f"{time.time_ns():020d}-{uuid.uuid4().hex[:8]}"
        self.index, self.count = index, count
        self.connected = False
        self.refused: DistributedInputError | None = None
        self.contradiction = ""
        self._failed: _Failed | None = None
        self._consumer = consumer
        self._pod, self._ranks = pod, ranks
        self._local_share = LocalShare()
        self._stopping = threading.Event()
        self._ending = threading.Lock()
        self._client = DispatcherClient(address, credentials, self._stopping)
        self._joining = threading.Lock()  # guards the next one, and the facts of its run
        self._registered = _Registered()
        self._dispatcher_id = ""
        self._dispatcher_since = 0.0
        self._answered_at = time.monotonic()
        self._requested = threading.Event()
        self._counted = threading.Condition()  # guards the next two
        self._begun = self._confirmed = 0  # heartbeats
        self._registering: threading.Thread | None = None
        self._thread = threading.Thread(target=self._run, name="link", daemon=True)

    def start(self) -> None:
        """Begin to send heartbeats."""
        self._thread.start()

    def stop(self) -> None:
        """Report that this consumer has finished, and close all channels. Another call waits."""
        with self._ending:
            if self._stopping.is_set():
                return
            self._stopping.set()
            self._requested.set()
            self._thread.join(CALL_SECONDS + 1)
            if self.connected:
                # Other consumers may need the facts since the last heartbeat, and the next run
                # needs the job's name.
                with contextlib.suppress(grpc.RpcError):
                    self._send_heartbeat(_STOP_SECONDS, leaving=True)
            self.pool.close()
            self._client.close()

    @property
    def heartbeat_age(self) -> float:
        """Seconds since the dispatcher last answered, or since the start if it never has."""
        return time.monotonic() - self._answered_at

    def request_heartbeat(self) -> None:
        """Send a heartbeat now rather than at the end of the interval."""
        self._requested.set()

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        """Send all facts of now. Return whether the dispatcher confirmed them in `seconds`."""
        deadline = time.monotonic() + seconds
        with self._counted:
            number = self._begun + 1  # one on its way may have older facts
            self.request_heartbeat()
            while self._confirmed < number and not cancelled.is_set():
                left = deadline - time.monotonic()
                if left <= 0:
                    return False
                self._counted.wait(min(left, 0.1))
            return self._confirmed >= number

    # Jobs and datasets.

    def running_job(self, name: str) -> types_pb2.Job | None:
        """Return the job of this name if other trainers read it now, else None."""
        try:
            return self._client.get_job(name, self.incarnation)
        except grpc.RpcError:
            return None

    def register(self, job: types_pb2.Job, dataset: bytes, deadline: float) -> types_pb2.Job:
        """Register a job, and its dataset if the trainer brought one.

        Args:
            job: the job, complete.
            dataset: a serialized GraphDataset, or b"".
            deadline: monotonic time until which to retry.

        Returns:
            The job as the dispatcher has it.

        Raises:
            JobConflictError: another job has this name.
            UnavailableError: no dispatcher answered before the deadline.
        """
        if self._registered.job is not None and not is_same(self._registered.job, job):
            self._release_job()
        dispatcher_id = self._dispatcher_id  # it may change before the job is registered
        registered = self._client.retry(
            lambda: self._client.register_job(job, dataset, self.incarnation, deadline),
            deadline,
            "register",
        )
        self._join(_Registered(registered, dataset, dispatcher_id))
        return registered

    def wait_for_job(self, name: str, run: str, deadline: float) -> types_pb2.Job:
        """Return the job that another consumer registers.

        Args:
            name: full name of the job.
            run: run that the trainer reads; empty: it waits for one that another trainer reads.
            deadline: monotonic time until which to retry.

        Raises:
            UnavailableError: it was not registered before the deadline.
        """
        self._release_job()  # it may have changed
        job = self._client.retry(
            lambda: self._client.get_job(name, "" if run else self.incarnation),
            deadline,
            f"wait for consumer 0 to register job {name}",
        )
        self._join(_Registered(job))
        return job

    def _join(self, registered: _Registered) -> None:
        """Join a run. Nothing that is known of an earlier one reaches it."""
        with self._joining:
            before, job = self._registered.job, registered.job
            if before is None or job is None or before.run != job.run or self.contradiction:
                self._consumer.drop_facts()
                self.partition_facts.clear()
                self.contradiction = ""
            self._failed = None
            self._consumer.join()
            self._registered = registered  # last: from now on, heartbeats are of this run
        self.request_heartbeat()

    def _release_job(self) -> None:
        """Release the job and report it, so that another one can be registered under its name."""
        if self._registered.job is not None:
            with self._joining:
                self._registered = _Registered()
            self.publish_facts(CALL_SECONDS, self._stopping)
            self.partition_facts.clear()

    # Heartbeats.

    def _run(self) -> None:
        while not self._stopping.is_set():
            try:
                interval = self._send_heartbeat()
                if not self.connected:
                    _log.info("dispatcher answers", address=self._client.address)
                self.connected, self.refused = True, None
            except grpc.RpcError as failed:
                self._record_failure(self._client.error_of(failed, "heartbeat"))
                interval = _RETRY_SECONDS
            except Exception:  # noqa: BLE001  a bug must not end the heartbeats
                _log.exception("heartbeat failed")
                interval = _RETRY_SECONDS
            self._requested.wait(interval)
            # However many heartbeats are requested, the dispatcher gets at most 20 a second.
            if self._requested.is_set() and not self._stopping.wait(_MIN_INTERVAL_SECONDS):
                self._requested.clear()

    def _record_failure(self, error: DistributedInputError) -> None:
        refused = None if isinstance(error, RetryableError) else error
        if self.connected or str(refused) != str(self.refused):
            _log.warning("heartbeat failed", cause=str(error))
        self.connected, self.refused = False, refused
        if isinstance(error, FencedError | JobConflictError):
            self._consumer.refuse(error)

    def _send_heartbeat(self, timeout: float = CALL_SECONDS, leaving: bool = False) -> float:
        """Send one heartbeat and process the answer. Return the seconds until the next one."""
        with self._counted:
            self._begun += 1
            number = self._begun
        registered = self._registered
        request = self._heartbeat(registered.job, leaving)
        answer = self._client.heartbeat(request, timeout)
        now = self._answered_at = time.monotonic()
        if answer.dispatcher_id != self._dispatcher_id:
            self._dispatcher_since = now if self._dispatcher_id else float("-inf")
            self._dispatcher_id = answer.dispatcher_id
        self._update_workers(answer.workers, now)
        if self._pod:
            self._share_locally(request, now)
        contradiction = self._merge_facts(registered, request, answer, number)
        if answer.fenced:
            self._consumer.refuse(
                FencedError(
                    f"this trainer was consumer {self.index} of {self.count} and stops "
                    f"here: {answer.fenced_by or 'another one took its place'}"
                )
            )
        if contradiction := answer.contradiction or contradiction:
            self._end_run(contradiction, request.run)
        if not answer.job_unknown:
            with self._counted:
                self._confirmed = number
                self._counted.notify_all()
        # A new dispatcher may have the job from another consumer, but without the dataset.
        if answer.job_unknown or registered.dispatcher_id != self._dispatcher_id:
            self._begin_to_register(registered)
        return heartbeat_interval(answer.interval_seconds)

    def _merge_facts(
        self,
        registered: _Registered,
        request: dispatcher_pb2.ConsumerHeartbeatRequest,
        answer: dispatcher_pb2.ConsumerHeartbeatResponse,
        number: int,
    ) -> str:
        """Add the facts of an answer if they belong to this run. Return a contradiction, or "".

        If other trainers have begun a run while the dispatcher did not get the heartbeats of this
        one, and its trainer reads on, it belongs to theirs.
        """
        with self._joining:
            if registered is not self._registered or registered.job is None:
                return ""
            if answer.run in ("", request.run):
                failed = _Failed(number, request.epoch, answer.failed_epoch, answer.failed)
                self._failed = failed if answer.failed else None
                return next(iter(self.partition_facts.merge(answer.facts)), "")
            if not request.no_trainer:
                job = types_pb2.Job()
                job.CopyFrom(registered.job)
                job.run = answer.run
                self.partition_facts.clear()
                self._failed = None
                self._registered = replace(registered, job=job)
                self.request_heartbeat()
            return ""

    def _heartbeat(
        self, job: types_pb2.Job | None, leaving: bool
    ) -> dispatcher_pb2.ConsumerHeartbeatRequest:
        stats = self._consumer.stats()
        return dispatcher_pb2.ConsumerHeartbeatRequest(
            job=job.name if job is not None else "",
            index=self.index,
            count=self.count,
            incarnation=self.incarnation,
            facts=self._consumer.facts(),
            epoch=stats.epoch,
            rows=stats.rows,
            batches=stats.batches,
            wait_seconds=stats.wait_seconds,
            wall_seconds=stats.wall_seconds,
            buffer_fill=stats.buffer_fill,
            replay_mismatches=stats.mismatches,
            finished=leaving or stats.finished,
            useful_workers=stats.useful_workers,
            useful_limit=stats.useful_limit,
            protocol=PROTOCOL,
            waiting_for=stats.waiting_for,
            run=job.run if job is not None else "",
            no_trainer=stats.no_trainer,
            pauses=stats.pauses,
            received=stats.received,
            pod=self._pod,
            sources=stats.sources,
            weights=stats.weights,
            failed=stats.failed or self.contradiction,  # so that the others do not wait
        )

    def _end_run(self, contradiction: str, run: str) -> None:
        """Report to the trainer that the run must end, unless it has joined another one."""
        with self._joining:
            job = self._registered.job
            if job is None or run != job.run or self.contradiction:
                return
            self.contradiction = contradiction
        self._consumer.refuse(_contradiction_error(contradiction))

    def check_run(self) -> None:
        """Raise ReplayError if the consumers of this run contradict each other."""
        if self.contradiction:
            raise _contradiction_error(self.contradiction)

    @property
    def next_heartbeat(self) -> int:
        """The number of the next heartbeat."""
        with self._counted:
            return self._begun + 1

    def check_others(self, epoch: int, since: int, waited: float) -> None:
        """Raise an error if another consumer will report no more facts about the epoch.

        This one would wait for them. One that is in another epoch gets some seconds: it may begin
        this epoch, or its last facts may be on their way.

        Args:
            epoch: epoch of this consumer.
            since: number of the first heartbeat that counts: the other one may have read again.
            waited: seconds that this consumer has waited for the others.

        Raises:
            OtherConsumerError: an error has ended its epoch.
            LeftEpochError: it reads a later epoch.
        """
        failed = self._failed
        if failed is None or failed.number < since:
            return
        patience = 0.0 if failed.other == epoch else _OTHER_EPOCH_SECONDS
        if failed.other <= failed.own and waited >= patience:
            raise OtherConsumerError(failed.error)
        # An epoch that is read ahead is not the one that the other has left.
        if failed.other > failed.own == epoch and waited >= patience:
            raise LeftEpochError(failed.error)

    def _update_workers(self, workers: Iterable[dispatcher_pb2.WorkerInfo], now: float) -> None:
        if now - self._dispatcher_since < _REJOIN_SECONDS:
            # The dispatcher has just started. Workers that have not registered yet still serve.
            self.pool.add(workers)
        else:
            self.pool.update(workers)

    def _share_locally(self, sent: dispatcher_pb2.ConsumerHeartbeatRequest, now: float) -> None:
        """Set the share of the pod's own worker by what trainer and worker have reported."""
        sample = LocalSample(
            now, sent.rows, sent.wait_seconds, sent.wall_seconds, self.pool.local_counters()
        )
        self._local_share = self._local_share.add(sample)
        self.pool.share_locally(self._local_share, self.count, self._ranks)

    def _begin_to_register(self, registered: _Registered) -> None:
        """Register a job again in another thread: heartbeats must not wait for a large dataset."""
        job = registered.job
        if job is not None and not (self._registering and self._registering.is_alive()):
            arguments = registered, job, self._dispatcher_id
            self._registering = threading.Thread(
                target=self._register_again, args=arguments, name="register", daemon=True
            )
            self._registering.start()

    def _register_again(
        self, registered: _Registered, job: types_pb2.Job, dispatcher_id: str
    ) -> None:
        try:
            self._client.upload(job.dataset_id, registered.dataset)
            if registered is not self._registered:  # released meanwhile
                return
            self._client.register_job(job, b"", self.incarnation)
            registered.dispatcher_id = dispatcher_id
            _log.info("registered again", job=job.name, dispatcher=dispatcher_id)
            self.request_heartbeat()  # with the facts
        except grpc.RpcError as failed:
            error = self._client.error_of(failed, f"register job {job.name} again")
            if not isinstance(error, RetryableError):
                self._consumer.refuse(error)
        except ValueError:  # the channel was closed
            if not self._stopping.is_set():
                raise


def _contradiction_error(contradiction: str) -> ReplayError:
    return ReplayError(
        f"{contradiction}. All trainers must stop. Then start them again, from a checkpoint before "
        "that"
    )
