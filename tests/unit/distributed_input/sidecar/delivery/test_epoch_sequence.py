from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import dispatcher_pb2, trainer_pb2, types_pb2
from distributed_input.assignment.share import share_of
from distributed_input.sidecar.delivery.epoch_sequence import EpochSequence
from distributed_input.sidecar.delivery.outbox import UnitOutbox
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
