from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.order.share import share_of
from distributed_input.sidecar.delivery import epoch_sequence
from distributed_input.sidecar.delivery.ack_tracker import AckTracker
from distributed_input.sidecar.delivery.epoch_run import EpochRequest
from distributed_input.sidecar.delivery.epoch_sequence import EpochSequence
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.steps.partition_facts import PartitionFacts
from tests.unit.distributed_input.dispatcher.builders import fact
from tests.unit.distributed_input.sidecar.delivery.sockets import Trainer
from tests.unit.distributed_input.sidecar.system import ROWS, System, eventually, running


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path) as system:
        yield system


class Delivery:
    """A sequence of epochs, without a session. `begun` has the facts at each begin."""

    def __init__(self, system: System, epochs: int) -> None:
        own = system.add_sidecar(epochs=epochs)
        job = own.open_job(types_pb2.Job(), b"")
        self.begun: list[Sequence[dispatcher_pb2.PartitionFact]] = []
        self.trainer = Trainer()
        self.outbox = UnitOutbox(self.trainer.socket, own.slots)
        self.epochs = EpochSequence(own.slots, self.outbox, self.begun.append)
        self.epochs.open(own.row_source(job), share_of(job, 0, 1))

    def start(self, epoch: int, generation: int) -> None:
        self.epochs.start(trainer_pb2.StartEpoch(epoch=epoch, generation=generation))

    def receive(self, generation: int) -> int:
        """Receive one generation to its end. Return the number of its rows."""
        rows = 0
        while True:
            message = self.trainer.receive()
            assert message is not None
            units = [*message.units.units, *([message.unit] if message.HasField("unit") else [])]
            rows += sum(unit.rows for unit in units if unit.generation == generation)
            if message.end.generation == generation:
                return rows

    def close(self) -> None:
        self.epochs.cancel()
        self.trainer.close()


def test_no_epoch_begins_once_they_are_stopped(system: System) -> None:
    """Its rows would go to slots that were released, although a process may still hold them."""
    delivery = Delivery(system, epochs=2)
    delivery.start(epoch=0, generation=1)
    assert delivery.receive(1) == ROWS
    delivery.epochs.stop()
    facts = delivery.epochs.facts()
    with pytest.raises(Cancelled):
        delivery.start(epoch=1, generation=3)
    assert delivery.epochs.facts() == facts
    delivery.close()


def test_the_next_epoch_is_sent_ahead_of_the_trainer(system: System) -> None:
    delivery = Delivery(system, epochs=2)
    delivery.start(epoch=0, generation=1)
    assert delivery.receive(1) == ROWS
    assert delivery.receive(2) == ROWS  # not started yet
    assert delivery.epochs.epoch == 0
    delivery.start(epoch=1, generation=2)
    assert delivery.epochs.epoch == 1
    assert len(delivery.begun) == 2  # the epoch was not begun again
    assert {fact.epoch for fact in delivery.begun[1]} == {0}
    assert all(fact.ended for fact in delivery.begun[1])
    delivery.close()


def test_another_generation_replaces_the_epoch_sent_ahead(system: System) -> None:
    delivery = Delivery(system, epochs=2)
    delivery.start(epoch=0, generation=1)
    assert delivery.receive(1) == ROWS
    delivery.start(epoch=0, generation=3)
    assert delivery.receive(3) == ROWS
    delivery.close()


def test_an_epoch_has_ended_once_all_its_units_are_acknowledged(system: System) -> None:
    delivery = Delivery(system, epochs=1)
    delivery.start(epoch=0, generation=1)
    assert delivery.receive(1) == ROWS
    assert not delivery.epochs.has_ended
    units = len(delivery.outbox.acks._sent)
    delivery.outbox.record_progress(trainer_pb2.Progress(generation=1, units=units))
    eventually(lambda: delivery.epochs.has_ended)
    delivery.close()


def test_an_epoch_beyond_the_last_is_refused(system: System) -> None:
    delivery = Delivery(system, epochs=2)
    with pytest.raises(ConfigError, match=r"input train has 2 epochs \(spec\.epochs\)"):
        delivery.start(epoch=2, generation=1)
    delivery.close()


def test_a_job_must_be_open_before_an_epoch_starts(system: System) -> None:
    delivery = Delivery(system, epochs=1)
    unopened = EpochSequence(delivery.epochs._slots, delivery.outbox, delivery.begun.append)
    with pytest.raises(ConfigError, match="before it opened the job"):
        unopened.start(trainer_pb2.StartEpoch(generation=1))
    delivery.close()


# With runs that the test ends.


class GivenRun:
    """A run that sends nothing. It ends once the test calls `send_all`."""

    def __init__(
        self, request: EpochRequest, source: Any, share: Any, slots: Any, outbox: Any, on_sent: Any
    ) -> None:
        self.request, self.source, self.share = request, source, share
        self.started = self.cancelled = self.done = False
        self.failed = ""
        self._on_sent: Callable[[GivenRun], None] = on_sent

    def start(self) -> None:
        """Record the call."""
        self.started = True

    def cancel(self) -> None:
        """Record the call."""
        self.cancelled = True

    def fail(self, error: str) -> None:
        """Store the error."""
        self.failed = error

    def facts(self) -> list[dispatcher_pb2.PartitionFact]:
        """Return a fact of the epoch."""
        return [fact(epoch=self.request.epoch)]

    def send_all(self) -> None:
        """End the run."""
        self.done = True
        self._on_sent(self)


class Given:
    """A sequence of a job with some epochs (0: no limit). `runs` are those that were begun."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, epochs: int = 0) -> None:
        self.runs: list[GivenRun] = []
        self.begun: list[Sequence[dispatcher_pb2.PartitionFact]] = []

        def create(*args: Any) -> GivenRun:
            self.runs.append(GivenRun(*args))
            return self.runs[-1]

        monkeypatch.setattr(epoch_sequence, "EpochRun", create)
        self.facts = PartitionFacts()
        self.outbox = SimpleNamespace(closed=False, acks=AckTracker())
        outbox: Any = self.outbox
        slots: Any = None
        self.epochs = EpochSequence(slots, outbox, self.begun.append)
        self.heartbeats: list[str] = []
        exchange = SimpleNamespace(request_heartbeat=lambda: self.heartbeats.append("now"))
        source: Any = SimpleNamespace(
            job=types_pb2.Job(epochs=epochs), facts=self.facts, exchange=exchange
        )
        share: Any = "the share"
        self.epochs.open(source, share)

    def start(self, epoch: int, generation: int, **fields: Any) -> None:
        """Start an epoch."""
        message = trainer_pb2.StartEpoch(epoch=epoch, generation=generation, **fields)
        self.epochs.start(message)

    @property
    def requests(self) -> list[tuple[int, int]]:
        """The (epoch, generation) of each run."""
        return [(run.request.epoch, run.request.generation) for run in self.runs]


@pytest.fixture
def given(monkeypatch: pytest.MonkeyPatch) -> Given:
    return Given(monkeypatch)


def test_one_epoch_is_begun_ahead_of_the_trainer(given: Given) -> None:
    assert given.epochs.epoch == 0
    given.start(epoch=5, generation=7)
    assert given.requests == [(5, 7)]
    given.runs[0].send_all()
    assert given.requests == [(5, 7), (6, 8)]
    assert all(run.started and run.request.position is None for run in given.runs)
    given.runs[1].send_all()
    assert len(given.runs) == 2, "the trainer has not started the second yet"
    assert given.epochs.epoch == 5
    given.start(epoch=6, generation=8)
    assert given.requests == [(5, 7), (6, 8), (7, 9)]
    assert not any(run.cancelled for run in given.runs)


def test_an_epoch_that_is_not_sent_has_no_successor(given: Given) -> None:
    given.start(epoch=0, generation=1)
    given.start(epoch=0, generation=1)
    assert given.requests == [(0, 1)]


def test_no_epoch_follows_the_last(monkeypatch: pytest.MonkeyPatch) -> None:
    given = Given(monkeypatch, epochs=2)
    given.start(epoch=0, generation=1)
    given.runs[0].send_all()
    given.start(epoch=1, generation=2)
    given.runs[1].send_all()
    assert given.requests == [(0, 1), (1, 2)]


@pytest.mark.parametrize("cause", ["cancelled", "closed", "replaced"])
def test_a_run_that_nothing_reads_has_no_successor(given: Given, cause: str) -> None:
    given.start(epoch=0, generation=1)
    run = given.runs[0]
    if cause == "cancelled":
        run.cancelled = True
    elif cause == "closed":
        given.outbox.closed = True
    else:
        given.start(epoch=0, generation=2)
        run.request, run.cancelled = EpochRequest(0, 2), False
    begun = given.requests
    run.send_all()
    assert given.requests == begun


def test_another_start_cancels_the_run_and_has_its_position(given: Given) -> None:
    given.start(epoch=0, generation=1)
    position = trainer_pb2.Position(step=3)
    given.start(epoch=0, generation=2, position=position)
    assert [run.cancelled for run in given.runs] == [True, False]
    assert given.runs[1].request == EpochRequest(0, 2, position)


def test_a_run_that_ends_during_a_start_waits_for_it_unless_it_is_cancelled(given: Given) -> None:
    given.start(epoch=0, generation=1)
    run = given.runs[0]
    with ThreadPoolExecutor(1) as executor:
        with given.epochs._changing:
            ending = executor.submit(run.send_all)
            threading.Event().wait(0.15)  # longer than the thread waits at once
            assert not ending.done()
        ending.result(10)
        assert given.requests == [(0, 1), (1, 2)]
        given.start(epoch=1, generation=2)
        with given.epochs._changing:
            given.runs[1].cancel()
            executor.submit(given.runs[1].send_all).result(10)
    assert len(given.runs) == 2


def test_the_facts_of_the_last_two_epochs_are_kept(given: Given) -> None:
    given.facts.merge([fact(rows_seen=5, epoch=epoch) for epoch in range(4)])
    given.start(epoch=2, generation=1)
    assert given.begun == [[]]
    known = [given.facts.of(epoch, 0).rows_seen for epoch in range(4)]
    assert known == [0, 5, 5, 5]
    given.runs[0].send_all()
    assert {one.epoch for one in given.begun[1]} == {2}
    assert [one.epoch for one in given.epochs.facts()] == [2, 3]


def test_cancel_stops_the_run_that_is_sent(given: Given) -> None:
    given.epochs.cancel()
    given.start(epoch=0, generation=1)
    given.epochs.cancel()
    assert given.runs[0].cancelled


def test_the_error_of_an_epoch_counts_once_the_trainer_reads_it(given: Given) -> None:
    seen = [given.epochs.failed]
    given.start(epoch=0, generation=1)
    given.runs[0].send_all()
    given.runs[1].failed = "row 7"
    seen.append(given.epochs.failed)  # the trainer still reads the epoch before
    given.start(epoch=1, generation=2)
    seen.append(given.epochs.failed)
    assert given.heartbeats == ["now"], "the others learn it at once"
    given.start(epoch=1, generation=3)  # it reads again
    assert [*seen, given.epochs.failed] == ["", "", "row 7", ""]


def test_an_error_of_the_loop_is_of_the_epoch_that_it_reads(given: Given) -> None:
    given.epochs.fail(1, "no epoch yet")
    given.start(epoch=0, generation=1)
    given.runs[0].send_all()  # the trainer still reads it
    given.epochs.fail(2, "of another epoch")
    assert given.epochs.failed == ""
    given.epochs.fail(1, "shapes differ")
    assert given.epochs.failed == "shapes differ"
    given.start(epoch=1, generation=2)
    assert given.epochs.failed == ""


def test_only_the_epoch_that_the_trainer_reads_can_have_ended(given: Given) -> None:
    unit = trainer_pb2.Unit(generation=1)
    given.start(epoch=0, generation=1)
    assert not given.epochs.has_ended, "its rows are not read"
    given.outbox.acks.add_sent(unit)
    given.runs[0].send_all()
    assert not given.epochs.has_ended, "the trainer has not received a unit"
    given.outbox.acks.acknowledge(1, 1)
    assert given.epochs.has_ended
    given.runs[1].done = True
    given.start(epoch=5, generation=3)
    assert not given.epochs.has_ended


def test_cancelling_stops_also_an_epoch_that_begins_meanwhile(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivery = Delivery(system, epochs=2)
    delivery.start(epoch=0, generation=1)
    first = delivery.epochs._run
    assert first is not None
    cancel = first.cancel

    def late() -> None:
        if not first.done:
            delivery.receive(1)
            eventually(lambda: delivery.epochs._run is not first)
        cancel()

    monkeypatch.setattr(first, "cancel", late)
    delivery.epochs.cancel()
    last = delivery.epochs._run
    assert last is not None
    assert last is not first
    assert last.cancelled
    delivery.close()
