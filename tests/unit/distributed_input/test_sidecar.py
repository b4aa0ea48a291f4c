"""Every wait of the sidecar ends at its default deadline, with the cause."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import grpc
import pytest

from distributed_input.api.config import DatasetConfig, DeliveryConfig, InputConfig
from distributed_input.api.errors import ConfigError, DatasetFnError, UnavailableError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link import statuses
from distributed_input.link.credentials import Credentials
from distributed_input.link.heartbeats import dispatcher_client
from distributed_input.link.heartbeats.dispatcher_client import DispatcherClient
from distributed_input.order.share import share_of
from distributed_input.sidecar.delivery import outbox as outboxes
from distributed_input.sidecar.delivery import slot_pool
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool
from distributed_input.sidecar.inputs import dispatcher_link, job_input
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.steps import epoch_reader, partition_facts, progress_deadline
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.steps.step_barrier import StepBarrier
from distributed_input.sidecar.streams import split_stream, worker_pool
from distributed_input.sidecar.streams.read_ahead import ReadAhead
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.sidecar.streams.worker_pool import WorkerPool
from tests.unit.distributed_input.sidecar.delivery.sockets import Trainer
from tests.unit.distributed_input.sidecar.steps.trainers import WaitingTrainer
from tests.unit.distributed_input.sidecar.streams.streaming import context, open_stream
from tests.unit.distributed_input.sidecar.system import NUMBERS, eventually
from tests.unit.distributed_input.virtual_time import VirtualTime

TIMEOUT = DeliveryConfig().timeout_seconds
NOWHERE = "127.0.0.1:9"


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> VirtualTime:
    clock = VirtualTime(monkeypatch)
    clock.replace(
        dispatcher_client, dispatcher_link, epoch_reader, job_input, partition_facts,
        outboxes, progress_deadline, slot_pool, split_stream, worker_pool,
    )  # fmt: skip
    return clock


def job_of(folder: Path, dataset: DatasetConfig) -> JobInput:
    return JobInput(
        "train", InputConfig(dataset), NOWHERE, Credentials(), folder, TrainerRanks(0, 2)
    )


class TimedOut(grpc.RpcError):
    """The error of a call that timed out."""

    def code(self) -> grpc.StatusCode:
        return grpc.StatusCode.DEADLINE_EXCEEDED

    def details(self) -> str:
        return "Deadline Exceeded"

    def trailing_metadata(self) -> tuple[()]:
        return ()


grpc.Call.register(TimedOut)


class SilentCall:
    """A call that times out, and its own future."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock

    def __call__(self, request: Any, timeout: float) -> Any:
        self._clock.sleep(timeout)
        raise TimedOut

    def future(self, request: Any, timeout: float) -> SilentCall:
        self._ends = self._clock.now + timeout
        return self

    def result(self, timeout: float) -> Any:
        self._clock.sleep(min(timeout, self._ends - self._clock.now))
        raise grpc.FutureTimeoutError if self._clock.now < self._ends else TimedOut

    def cancel(self) -> None:
        """Do nothing: it has ended."""


class SilentStub:
    """A server whose calls all time out."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock

    def __getattr__(self, name: str) -> SilentCall:
        return SilentCall(self._clock)


def test_a_dataset_that_no_worker_describes(tmp_path: Path, clock: VirtualTime) -> None:
    job, began = job_of(tmp_path, DatasetConfig("any:where")), clock.now
    with pytest.raises(UnavailableError, match=r"has described .* for 600 s .*none is registered"):
        job.open_job(types_pb2.Job(), b"")
    assert TIMEOUT <= clock.now - began < TIMEOUT + 1
    job.slots.close()


@pytest.mark.parametrize("before", [0.0, 119.0])
def test_a_worker_that_describes_for_ever(
    tmp_path: Path, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch, before: float
) -> None:
    """The error is earlier than that of the trainer, which waits 30 s longer."""
    job, began = job_of(tmp_path, DatasetConfig("any:where")), clock.now
    stub = SilentStub(clock)
    found = lambda self: stub if clock.now >= began + before else None  # noqa: E731
    monkeypatch.setattr(WorkerPool, "any_stub", found)
    with pytest.raises(UnavailableError, match=r"for 600 s .*a worker: DEADLINE_EXCEEDED"):
        job.open_job(types_pb2.Job(), b"")
    assert TIMEOUT <= clock.now - began < TIMEOUT + 2
    job.slots.close()


def test_a_trainer_is_told_what_takes_a_description_long(
    tmp_path: Path, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, told = job_of(tmp_path, DatasetConfig("any:where")), list[str]()
    slow = "importing the module of dataset any:where has taken 12 s, in f (any.py:3)"
    monkeypatch.setattr(WorkerPool, "any_stub", lambda _: SilentStub(clock))
    monkeypatch.setattr(WorkerPool, "slow_description", lambda _, name: slow * ("any" in name))
    with pytest.raises(UnavailableError, match=r"for 600 s .*: importing .*\(any\.py:3\)$"):
        job.open_job(types_pb2.Job(), b"", told.append)
    assert set(told) == {f"the description of the dataset: {slow}"}
    job.slots.close()


def test_a_description_that_has_ended_workers_is_an_error_at_once(
    tmp_path: Path, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    job, began = job_of(tmp_path, DatasetConfig("any:where")), clock.now
    monkeypatch.setattr(WorkerPool, "any_stub", lambda _: SilentStub(clock))
    crash = lambda _, draft, who: f"{draft.entry_point.target} of {who}"  # noqa: E731
    monkeypatch.setattr(WorkerPool, "description_crash", crash)
    with pytest.raises(DatasetFnError, match=f"any:where of {job.link.incarnation}"):
        job.open_job(types_pb2.Job(), b"")
    assert clock.now == began
    job.slots.close()


def test_registering_at_a_dispatcher_that_does_not_answer(clock: VirtualTime) -> None:
    client = DispatcherClient(NOWHERE, Credentials(), dispatcher_client.threading.Event())
    client._stub = SilentStub(clock)  # type: ignore[assignment]
    began = clock.now
    deadline = began + TIMEOUT
    with pytest.raises(UnavailableError, match=r"register: .*gave up after spec\.sidecar"):
        client.retry(
            lambda: client.register_job(types_pb2.Job(), b"graph", "i", deadline),
            deadline,
            "register",
        )
    assert TIMEOUT <= clock.now - began < TIMEOUT + 2 * dispatcher_client.CALL_SECONDS
    client.close()


def test_waiting_for_the_job_of_another_consumer(tmp_path: Path, clock: VirtualTime) -> None:
    job, began = job_of(tmp_path, DatasetConfig()), clock.now
    job.link._client._stub = SilentStub(clock)  # type: ignore[assignment]
    job.consumer = 1
    with pytest.raises(UnavailableError, match="wait for consumer 0 to register job train"):
        job.open_job(types_pb2.Job(), b"")
    assert TIMEOUT <= clock.now - began < TIMEOUT + dispatcher_client.CALL_SECONDS
    job.slots.close()


def test_publishing_facts_to_a_dispatcher_that_is_away(tmp_path: Path, clock: VirtualTime) -> None:
    job, began = job_of(tmp_path, DatasetConfig()), clock.now
    assert not job.link.publish_facts(2.0, threading.Event())
    assert 2.0 <= clock.now - began < 2.2
    job.slots.close()


class SilentPartition:
    """The reader of a partition without rows."""

    ended = False
    replayed = rows = 0
    advanced_at = float("-inf")
    problem = ""
    head = "split 0"
    is_full = False

    def next(self, rows: int) -> list[Any]:
        return []

    def locate(self) -> bool:
        return False


class ReportedTrainer(WaitingTrainer):
    """Records when the sidecar reported its wait."""

    def __init__(self, clock: VirtualTime) -> None:
        self._clock = clock
        self.at: list[float] = []

    def report_wait(self, what: str, cancelled: threading.Event) -> None:
        self.at.append(self._clock.now)


class NoExchange:
    """An exchange without other consumers. Keeps the last wait for them, in seconds."""

    waited = 0.0

    def request_heartbeat(self) -> None:
        """Do nothing."""

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        return False

    def check_run(self) -> None:
        """Do nothing."""

    next_heartbeat = 1

    def check_others(self, epoch: int, since: int, waited: float) -> None:
        self.waited = waited


@pytest.fixture
def reader(clock: VirtualTime, pool: WorkerPool) -> EpochReader:
    job = types_pb2.Job(num_splits=2, partitions=2, global_batch_size=2, row_spec=NUMBERS.to_json())
    source = RowSource(
        job, pool, PartitionFacts(), NoExchange(), StreamStats(), ReadAhead(1), TIMEOUT
    )
    found = EpochReader(source, share_of(job, 0, 2), 0, ReportedTrainer(clock))
    found.partitions[0] = SilentPartition()  # type: ignore[assignment]
    return found


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    pool = WorkerPool(Credentials())
    yield pool
    pool.close()


@pytest.mark.parametrize("wait", ["take", "locate"])
def test_rows_that_never_come(reader: EpochReader, clock: VirtualTime, wait: str) -> None:
    began = clock.now
    waits = {
        "take": lambda: reader.take(0, 1),
        "locate": lambda: reader.locate(0),
    }
    with pytest.raises(
        UnavailableError, match=r"for 600 s \(spec\.sidecar\.timeoutSeconds; split 0"
    ):
        waits[wait]()
    assert TIMEOUT <= clock.now - began < TIMEOUT + 2
    trainer = reader._trainer
    assert isinstance(trainer, ReportedTrainer)
    assert len(trainer.at) >= 4
    assert max(b - a for a, b in zip([began, *trainer.at], trainer.at, strict=False)) <= 152
    """The client gives up 630 s after the last report."""


def test_facts_that_never_come(reader: EpochReader, clock: VirtualTime) -> None:
    share = share_of(reader.source.job, 0, 2)
    began = clock.now
    with pytest.raises(UnavailableError, match=r"other trainers' end of the epoch .* for 600 s"):
        StepBarrier(reader, share, [0, 0]).any_has_rows(3)
    assert TIMEOUT <= clock.now - began < TIMEOUT + 1


def test_a_trainer_that_does_not_wait_may_pause_for_longer(
    reader: EpochReader, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    exchange: Any = reader.source.exchange
    monkeypatch.setattr(ReportedTrainer, "trainer_waits", False)
    deadline, began = ProgressDeadline(TIMEOUT), clock.now
    while clock.now - began < 3 * TIMEOUT:
        reader.wait_facts("the others", deadline)
        assert exchange.waited == 0.0
    monkeypatch.setattr(ReportedTrainer, "trainer_waits", True)
    began = clock.now
    with pytest.raises(UnavailableError, match="for 600 s"):
        wait_facts_for_ever(reader, deadline)
    assert TIMEOUT - 1 <= clock.now - began < TIMEOUT + 1
    assert exchange.waited == pytest.approx(TIMEOUT, abs=1)


def wait_facts_for_ever(reader: EpochReader, deadline: ProgressDeadline) -> None:
    while True:
        reader.wait_facts("the others", deadline)


def delays(clock: VirtualTime) -> Callable[[float, Callable[[], None]], None]:
    """Return a replacement of `WorkerPool.later`."""

    def run(seconds: float, action: Callable[[], None]) -> None:
        clock.sleep(seconds)
        action()

    def later(seconds: float, action: Callable[[], None]) -> None:
        threading.Thread(target=run, args=(seconds, action), daemon=True).start()

    return later


def test_a_stream_without_a_worker(
    pool: WorkerPool, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "later", delays(clock))
    began = clock.now
    shared = context(pool, timeout=TIMEOUT)
    stream = open_stream(shared)
    eventually(lambda: stream._error is not None)
    with shared.lock, pytest.raises(UnavailableError, match=r"no worker of job train for 600 s"):
        stream.next(1)
    assert TIMEOUT <= clock.now - began < TIMEOUT + 1


class BrokenLink:
    """The link of a worker whose streams all break."""

    def open(self, request: Any, credit: int, receiver: Any) -> Any:
        call: Any = SimpleNamespace(grant=lambda credit: None, close=lambda: None)
        error = statuses.from_rpc_error(TimedOut(), "worker w")
        threading.Thread(target=receiver.fail, args=(call, error, False), daemon=True).start()
        return call


def test_a_stream_whose_workers_all_fail(
    pool: WorkerPool, clock: VirtualTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pool, "later", delays(clock))
    link: Any = BrokenLink()
    monkeypatch.setattr(pool, "acquire", lambda keys, key: ("w", link))
    began = clock.now
    shared = context(pool, timeout=TIMEOUT)
    stream = open_stream(shared)
    eventually(lambda: stream._error is not None)
    with shared.lock, pytest.raises(UnavailableError, match=r"read for 60\d s .*DEADLINE_EXCEEDED"):
        stream.next(1)
    assert TIMEOUT <= clock.now - began < TIMEOUT + 2


def test_a_trainer_that_holds_all_slots(tmp_path: Path, clock: VirtualTime) -> None:
    slots, trainer = SlotPool(tmp_path / "slots", 4 * ALIGN), Trainer()
    outbox = UnitOutbox(trainer.socket, slots)
    cancelled = threading.Event()
    for _ in range(4):
        outbox.allocate(ALIGN, cancelled, TIMEOUT)
    outbox.record_progress(trainer_pb2.Progress(waiting=True))
    began = clock.now
    with pytest.raises(UnavailableError, match="holds all 4 batches"):
        outbox.allocate(ALIGN, cancelled, TIMEOUT)
    assert 30 <= clock.now - began < 33
    slots.close()
    trainer.close()


def test_a_unit_larger_than_the_buffer_does_not_wait(tmp_path: Path, clock: VirtualTime) -> None:
    slots, began = SlotPool(tmp_path / "slots", 4 * ALIGN), clock.now
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.buffer"):
        slots.allocate(5 * ALIGN, clock.now + TIMEOUT, threading.Event())
    assert clock.now == began
    slots.close()
