"""A consumer continues with the next sidecar, unless it gets an error.

This module is long because all tests of one module are in one file.
"""

from __future__ import annotations

import contextlib
import gc
import queue
import threading
from pathlib import Path

import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    FencedError,
    PositionError,
    TerminalError,
    UnavailableError,
)
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity
from distributed_input.trainer import session
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks.lazy_epoch import LoopCounter
from distributed_input.trainer.input import Input
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar, Trainer, begun, opened


def fail(trainer: Trainer, kind: str) -> None:
    """Send a failure and end the connection."""
    trainer.send(failure={"kind": kind, "message": "no more"})
    trainer.end()


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sidecar-watch"]


def test_the_next_sidecar_gets_the_position_while_no_batch_is_requested(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    for index in range(3):
        trainer.unit(generation, index, step=index + 1)
    assert next(units).rows == 1
    start = sidecar.replaced(trainer).start()  # before a batch is requested
    assert (start.generation, start.position.step) == (generation, 3)
    assert [next(units).rows, next(units).rows] == [1, 1], "units that had arrived are kept"


def test_the_next_sidecar_gets_the_totals_before_the_first_batch(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    for index in range(2):
        trainer.unit(generation, index, step=index + 1)
    assert [next(units).rows, next(units).rows] == [1, 1]
    after = sidecar.replaced(trainer)
    after.start()
    received = after.received.get(timeout=SECONDS).progress.received
    assert (received.rows, received.batches) == (2, 2)


def test_a_new_sidecar_gets_the_position_of_an_epoch_that_has_ended(sidecar: Sidecar) -> None:
    """Other trainers may still need the end of this one."""
    consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    trainer.send(end={"generation": generation, "units": 1})
    assert len(list(consumer.units(generation))) == 1
    after = sidecar.replaced(trainer)
    assert after.start().position.step == 1
    after.send(end={"generation": generation})  # for the second time
    assert consumer.begin() == generation + 1
    assert after.start().generation == generation + 1
    after.unit(generation + 1, 0, step=1)
    assert next(consumer.units(generation + 1)).rows == 1


def test_what_has_arrived_is_known_without_a_wait(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    assert not consumer.has_arrived()
    trainer.unit(generation, 0, step=1)  # a sent packet has arrived
    assert consumer.has_arrived()
    assert next(units).rows == 1
    assert not consumer.has_arrived()
    trainer.send(end={"generation": generation, "units": 1})
    assert consumer.has_arrived()
    assert list(units) == []


def test_a_gap_is_an_error_of_the_next_read_and_not_of_a_look(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.unit(generation, 1, step=2)
    assert not consumer.has_arrived()
    with pytest.raises(TerminalError, match="missing"):
        next(units)


@pytest.mark.parametrize("is_over", [False, True])
def test_a_restored_epoch_without_batches_left_is_skipped(sidecar: Sidecar, is_over: bool) -> None:
    consumer, trainer, generation = begun(sidecar)
    position = consumer.position()
    position.step = 3
    consumer.restore(position)
    looked_at = generation + 2  # the sidecar may have read ahead under the next one
    if is_over:
        trainer.send(end={"generation": looked_at})
    else:
        trainer.unit(looked_at, 0, step=4)
    assert Input(consumer).skip_ended_epoch() == is_over
    consumer.begin()
    starts = [trainer.start() for _ in range(2)]
    assert [start.position.step for start in starts] == [3, 0 if is_over else 3]
    assert [start.epoch for start in starts] == [0, 1 if is_over else 0]


def test_a_python_loop_that_fetches_ahead_may_count_itself(sidecar: Sidecar) -> None:
    consumer, counter = opened(sidecar.folder), LoopCounter()
    trainer, data = sidecar.trainer(), Input(consumer)
    consumer.count_steps(counter)
    generation = consumer.begin()
    for index in range(3):
        trainer.unit(generation, index, step=index + 1)
    units = consumer.units(generation)
    for _ in range(3):
        counter.fetched += 1
        next(units)
    steps = [
        trainer_pb2.Position.FromString(data.position(batches)).step for batches in (None, 1, 2)
    ]
    assert steps == [3, 1, 2]


class Loop:
    """A loop that counts its steps.

    Attributes:
        steps: the number of steps that it has requested.
    """

    def __init__(self) -> None:
        self.steps = 0
        self.iterators = 1

    def requested(self, _iterator: int) -> int:
        """Return the number of steps."""
        return self.steps

    def invalidate(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize("replicas", [1, 2])
def test_a_position_counts_the_whole_elements_that_the_loop_consumed(
    tmp_path: Path, replicas: int
) -> None:
    """A step of the job has an element of each partition, and one of the loop of each replica."""
    per_step, elements = 8, 15
    job = types_pb2.Job(name="train", partitions=per_step)
    opened = trainer_pb2.Opened(job=job, units_per_step=per_step, lineage=True)
    sidecar = Sidecar(tmp_path, opened=opened)
    consumer, loop = Consumer(tmp_path, "", SECONDS, lineage=True), Loop()
    consumer.open(types_pb2.Job(), b"", replicas)
    consumer.count_steps(loop)
    trainer, generation = sidecar.trainer(), consumer.begin()
    units, consumed = consumer.units(generation), []
    for index in range(elements):
        trainer.unit(generation, index, step=1 if index + 1 == per_step else None)
    trainer.send(end={"generation": generation, "units": elements})
    for read in range(elements // replicas):
        loop.steps += 1
        for _ in range(replicas):
            next(units)
        position = consumer.position(consumer.requested_units())
        consumed.append(position.step * per_step + position.extra_units)
        assert consumed[-1] == (read + 1) * replicas
        assert not position.end
        names = consumer.lineage(consumer.requested_units()).split.tolist()
        assert names == list(range(read * replicas, (read + 1) * replicas))
    loop.steps += 1
    assert len(list(units)) == elements % replicas
    position = consumer.position(consumer.requested_units())
    assert position.end == (replicas == 1), "the last step of two replicas has one element"
    assert position.step * per_step + position.extra_units == elements + elements % replicas
    last = consumer.lineage(consumer.requested_units()).split.tolist()
    assert last == names, "no loop gets a step with too few elements"
    loop.steps += 1
    assert consumer.position(consumer.requested_units()).end
    consumer.close()
    sidecar.close()


@pytest.mark.parametrize("prefetches", [False, True])
def test_a_counted_position_at_the_end_is_that_of_the_next_epoch(
    sidecar: Sidecar, prefetches: bool
) -> None:
    """If TensorFlow prefetches, only the program knows whether its loop has met the end."""
    consumer, trainer, generation = begun(sidecar)
    consumer.count_steps(None, prefetches=prefetches)
    for index in range(2):
        trainer.unit(generation, index, step=index + 1)
    trainer.send(end={"generation": generation, "units": 2})
    assert len(list(consumer.units(generation))) == 2
    train = Input(consumer)

    def is_end(batches: int, **over: bool) -> bool:
        return trainer_pb2.Position.FromString(train.position(batches, **over)).end

    assert is_end(2) != prefetches
    assert is_end(2, epoch_over=True)
    assert not is_end(1)
    assert not is_end(1, epoch_over=True)


def test_units_that_a_dead_sidecar_read_ahead_are_dropped(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    trainer.send(end={"generation": generation})
    assert list(consumer.units(generation)) == []
    trainer.unit(generation + 1, 0)  # read ahead
    after = sidecar.replaced(trainer)
    assert after.start().generation == generation
    assert consumer.begin() == generation + 1
    after.unit(generation + 1, 0)
    after.send(end={"generation": generation + 1, "units": 1})
    assert len(list(consumer.units(generation + 1))) == 1


def test_the_position_behind_pending_units_has_the_identity_of_the_dataset(
    sidecar: Sidecar,
) -> None:
    """The next sidecar refuses a position without it."""
    _consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    position = sidecar.replaced(trainer).start().position
    assert (position.step, position.format) == (1, identity.FORMAT)


def test_a_fenced_consumer_does_not_reconnect(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    channel = consumer._session.channel
    trainer.unit(generation, 0, step=1)
    fail(trainer, "FencedError")
    for watcher in watchers():
        watcher.join(SECONDS)
    consumer.reconnect_from(channel)
    units = consumer.units(generation)
    assert next(units).rows == 1
    for _ in range(2):
        with pytest.raises(FencedError, match="no more"):
            next(consumer.units(generation))
        with pytest.raises(FencedError, match="no more"):
            consumer.begin()
    with pytest.raises(queue.Empty):
        sidecar.trainers.get_nowait()


def test_other_errors_end_only_the_epoch(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    fail(trainer, "ConfigError")
    for _ in range(2):
        with pytest.raises(ConfigError):
            next(consumer.units(generation))
    with pytest.raises(queue.Empty):
        sidecar.trainers.get_nowait()
    again = consumer.begin()
    request = threading.Thread(target=lambda: next(consumer.units(again)))
    request.start()
    after = sidecar.trainer()
    assert after.start().generation == again
    after.unit(again, 0, step=1)
    request.join(SECONDS)
    assert not request.is_alive()


def test_a_failure_of_a_dropped_epoch_does_not_end_the_next_one(sidecar: Sidecar) -> None:
    """A sidecar reads ahead, so it may fail at a row that the loop does not request."""
    consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    assert next(consumer.units(generation)).rows == 1
    failure = {"kind": "DatasetFnError", "message": "row 7 cannot be read"}
    trainer.send(failure={**failure, "generation": generation})
    second = consumer.begin()
    assert trainer.start().generation == second
    trainer.unit(second, 0, step=1)
    units = consumer.units(second)
    assert next(units).rows == 1
    trainer.send(failure={**failure, "generation": second})
    with pytest.raises(DatasetFnError, match="row 7"):
        next(units)
    consumer.begin()
    start = trainer.start()
    # The position of the loop. The next generation may be in use: the sidecar reads ahead.
    assert (start.generation, start.position.step) == (second + 2, 1)


@pytest.mark.parametrize("connection", [False, True], ids=["of the epoch", "of the connection"])
def test_a_failure_that_an_abandoned_iterator_receives_ends_the_new_epoch(
    sidecar: Sidecar, connection: bool
) -> None:
    consumer, trainer, generation = begun(sidecar)
    errors: queue.SimpleQueue[Exception] = queue.SimpleQueue()

    def request(generation: int) -> None:
        try:
            next(consumer.units(generation))
        except Exception as error:  # noqa: BLE001
            errors.put(error)

    abandoned = threading.Thread(target=request, args=(generation,))
    abandoned.start()
    while not consumer._receive_lock.locked():
        pass  # until it waits
    second = consumer.begin()
    assert trainer.start().generation == second
    failure = {"kind": "DatasetFnError", "message": "row 7 cannot be read"}
    trainer.send(failure={**failure, "generation": 0 if connection else second})
    assert isinstance(errors.get(timeout=SECONDS), FencedError)
    abandoned.join(SECONDS)
    threading.Thread(target=request, args=(second,), daemon=True).start()
    error = errors.get(timeout=SECONDS)
    assert isinstance(error, DatasetFnError)
    assert "row 7" in str(error)


def test_a_failed_reconnection_ends_an_epoch_that_began_meanwhile(sidecar: Sidecar) -> None:
    consumer, trainer, _ = begun(sidecar)
    consumer._session.timeout = consumer.welcome.timeout_seconds = 1.0
    sidecar.close()
    trainer.close()
    while not consumer._receive_lock.locked():
        pass  # until the watcher reconnects
    second = consumer.begin()
    for watcher in watchers():
        watcher.join(SECONDS)
    assert consumer.generation == second
    consumer._session.timeout = consumer.welcome.timeout_seconds = 1000.0
    with pytest.raises(UnavailableError, match="no sidecar"):
        next(consumer.units(second))


def test_units_of_a_dropped_epoch_are_released(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    assert next(consumer.units(generation)).rows == 1
    trainer.unit(generation, 1, step=2)
    second = consumer.begin()
    trainer.unit(second, 0)
    units = consumer.units(second)
    assert next(units).rows == 1
    position = consumer.position()
    assert (position.epoch, position.step) == (1, 1)
    trainer.send(end={"generation": second, "units": 1})
    assert next(units, None) is None
    released: set[int] = set()
    while 64 not in released:
        released.update(trainer.received.get(timeout=SECONDS).release.slots)


def test_an_abandoned_iterator_takes_no_unit_of_the_next_epoch(sidecar: Sidecar) -> None:
    """Also not while it collects units that arrived together."""
    consumer, trainer, generation = begun(sidecar)
    abandoned = consumer.bursts(generation)
    for index in range(2):
        trainer.unit(generation, index, step=index + 1)
    assert len(next(abandoned)) == 1
    later = consumer.begin()
    assert trainer.start().generation == later
    for index in range(3):
        trainer.unit(later, index, step=index + 1)
    newest = consumer.bursts(later)
    assert len(next(newest)) == 1
    assert consumer._queue.pop(generation) is None, "it drops nothing of the next epoch"
    with pytest.raises(FencedError, match="another iterator"):
        next(abandoned)
    trainer.send(end={"generation": later, "units": 3})
    assert sum(len(burst) for burst in newest) == 2


@pytest.mark.parametrize("read", ["units", "bursts"])
def test_an_error_does_not_keep_batches(sidecar: Sidecar, read: str) -> None:
    """Also while no garbage is collected, as in programs that switch the collector off."""
    consumer, trainer, generation = begun(sidecar)
    gc.disable()
    try:
        units = getattr(consumer, read)(generation)
        trainer.units_together(generation, 3)
        trainer.send(failure={"kind": "UnavailableError", "message": "slow"})
        count = 0
        with contextlib.suppress(UnavailableError):
            for _ in units:
                count += 1
        assert count
        del units, _
        released: list[int] = []
        consumer.close()
        while len(released) < 3:
            released += trainer.received.get(timeout=SECONDS).release.slots
        assert sorted(released) == [0, 64, 128]
    finally:
        gc.enable()


def test_units_that_arrived_together_are_released_while_the_next_are_awaited(
    sidecar: Sidecar,
) -> None:
    consumer, trainer, generation = begun(sidecar)
    bursts = consumer.bursts(generation)
    trainer.units_together(generation, 3)
    assert len(next(bursts)) == 3
    waiting = threading.Thread(target=lambda: list(bursts), daemon=True)
    waiting.start()
    released: list[int] = []
    while len(released) < 3:
        released += trainer.received.get(timeout=SECONDS).release.slots
    assert sorted(released) == [0, 64, 128]
    trainer.send(end={"generation": generation, "units": 3})
    waiting.join(SECONDS)


def test_an_error_behind_units_that_arrived_together_comes_after_them(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    bursts = consumer.bursts(generation)
    trainer.unit(generation, 0, step=1)
    assert len(next(bursts)) == 1
    for index in (1, 3):
        trainer.unit(generation, index, step=index + 1)
    got = 1 + len(next(bursts))
    with pytest.raises(TerminalError, match="batches are missing"):
        next(bursts)
    assert consumer.received_units == got == 2


def test_an_epoch_with_a_gap_fails_and_the_next_continues_behind_the_last_unit(
    sidecar: Sidecar,
) -> None:
    """Another process that reads from the socket takes units away."""
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.unit(generation, 0, step=1)
    assert next(units).rows == 1
    trainer.unit(generation, 2, step=3)
    with pytest.raises(TerminalError, match=r"unit 2 .* batches are missing"):
        next(units)
    trainer.unit(generation, 3, step=4)
    again = consumer.begin()
    start = trainer.start()
    assert (start.generation, start.position.step) == (again, 1)
    trainer.unit(again, 0, step=2)
    assert next(consumer.units(again)).rows == 1


def test_an_unread_end_does_not_end_the_next_epoch(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    trainer.unit(generation, 1, step=2)
    trainer.send(end={"generation": generation, "units": 2})
    after = sidecar.replaced(trainer)
    again = after.start().position
    assert (again.step, again.format) == (2, identity.FORMAT), "the sidecar refuses other formats"
    second = consumer.begin()
    assert after.start().generation == second
    after.unit(second, 0, step=1)
    assert next(consumer.units(second)).rows == 1


def test_without_another_sidecar_the_iterator_raises_after_the_timeout(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    consumer._session.timeout = consumer.welcome.timeout_seconds = 0.2
    sidecar.close()
    trainer.close()
    for watcher in watchers():
        watcher.join(SECONDS)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no sidecar"):
            next(consumer.units(generation))


def test_a_new_epoch_tries_another_sidecar_after_a_rejected_job(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    consumer, trainer, generation = begun(sidecar)
    sidecar.close()
    trainer.close()
    refusing = Sidecar(tmp_path, 1, refusal="UnavailableError")
    with pytest.raises(UnavailableError, match="no job"):
        next(consumer.units(generation))
    refusing.close()
    later = Sidecar(tmp_path, 2)
    again = consumer.begin()
    request = threading.Thread(target=lambda: next(consumer.units(again)))
    request.start()
    after = later.trainer()
    assert after.start().generation == again
    after.unit(again, 0, step=1)
    request.join(SECONDS)
    assert not request.is_alive()


def test_closing_does_not_wait_for_a_sidecar(sidecar: Sidecar) -> None:
    consumer, trainer, _ = begun(sidecar)
    sidecar.close()
    trainer.close()
    closing = threading.Thread(target=consumer.close)
    closing.start()
    closing.join(SECONDS / 2)
    assert not closing.is_alive()


def test_a_garbage_collected_consumer_ends_its_watcher(sidecar: Sidecar) -> None:
    consumer, _, _ = begun(sidecar)
    mine = watchers()
    assert mine
    del consumer
    gc.collect()
    for watcher in mine:
        watcher.join(SECONDS)
        assert not watcher.is_alive()


@pytest.mark.slow
def test_a_sidecar_that_reports_progress_extends_the_deadline(
    sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The sidecar has its own deadline, but it must send something."""
    monkeypatch.setattr(session, "_GRACE_SECONDS", 1.5 - SECONDS)
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.1)
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)

    def report() -> None:
        for _ in range(6):
            threading.Event().wait(0.5)
            trainer.send(waiting={"what": "rows of partition 0"})
        trainer.unit(generation, 0, step=1)

    reporting = threading.Thread(target=report)
    reporting.start()
    assert next(units).rows == 1
    reporting.join(SECONDS)
    with pytest.raises(UnavailableError, match="sent nothing in time"):
        next(units)


def test_a_position_of_a_job_with_other_splits_is_refused(tmp_path: Path, sidecar: Sidecar) -> None:
    consumer = opened(tmp_path)
    position = consumer.position()
    consumer.opened.job.num_splits += 8
    consumer.restore(position)
    with pytest.raises(PositionError, match=r"spec\.numSplits"):
        consumer.begin()


def test_a_position_saved_before_the_job_was_opened_restores_its_start(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    """As a CheckpointManager does that saves before the first step."""
    consumer = Consumer(tmp_path, "", SECONDS)
    position = trainer_pb2.Position.FromString(consumer.position().SerializeToString())
    consumer.open(types_pb2.Job(), b"", 1)
    trainer = sidecar.trainer()
    consumer.begin()
    assert trainer.start().epoch == 0
    consumer.begin()
    assert trainer.start().epoch == 1
    consumer.restore(position)
    consumer.begin()
    start = trainer.start()
    assert (start.epoch, start.position.step, start.position.job) == (0, 0, "train")


def test_an_empty_position_is_refused(sidecar: Sidecar) -> None:
    consumer, _, _ = begun(sidecar)
    consumer.restore(trainer_pb2.Position())
    with pytest.raises(PositionError, match="format 0"):
        consumer.begin()
