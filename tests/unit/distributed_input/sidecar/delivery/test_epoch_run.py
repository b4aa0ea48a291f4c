"""One pass over an epoch: its units, its positions, and its end.

This module is long because all tests of one module are in one file, and each guard of the module
has a test.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import (
    DatasetFnError,
    PositionError,
    ReplayWarning,
    UnavailableError,
)
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link.errors import Cancelled
from distributed_input.order.share import share_of
from distributed_input.rows.blocks import RowBlock
from distributed_input.sidecar.delivery import epoch_run
from distributed_input.sidecar.delivery.epoch_run import EpochRequest, EpochRun
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.epoch_steps import EpochSteps
from distributed_input.sidecar.steps.partition_facts import OtherConsumerError, PartitionFacts
from distributed_input.sidecar.steps.row_source import RowSource
from distributed_input.sidecar.streams.read_ahead import ReadAhead
from distributed_input.sidecar.streams.stream_context import StreamStats
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.sidecar.system import BATCH, NUMBERS, System, running

ROWS = 37  # the last batch of the epoch is not full


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path, ROWS) as system:
        yield system


def batches(reader: Consumer) -> list[list[int]]:
    """Read one epoch. Return the numbers of the rows in each batch."""
    return [
        np.array(batch.buffers[0]).view(np.int64).tolist() for batch in reader.units(reader.begin())
    ]


@pytest.mark.parametrize(
    ("remainder", "sizes"),
    [
        ("keep", [BATCH] * 9 + [1]),
        ("drop", [BATCH] * 9),
        ("pad", [BATCH] * 10),
    ],
)
def test_the_last_batch_follows_the_remainder(
    system: System, remainder: str, sizes: list[int]
) -> None:
    system.add_sidecar(batching={"globalBatchSize": BATCH, "remainder": remainder})
    reader = system.connect()
    found = batches(reader)
    assert [len(batch) for batch in found] == sizes
    rows = sorted(itertools.chain.from_iterable(found))
    if remainder == "keep":
        assert rows == list(range(ROWS))
    elif remainder == "pad":
        assert rows == sorted([*range(ROWS), 0, 0, 0])
    else:
        assert len(set(rows)) == 36
    reader.close()


def test_the_trainer_is_warned_once_in_an_epoch_of_a_replay_that_differs(
    system: System, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(EpochReader, "difference", "split 3 differs")
    sent: list[int] = []
    real = UnitOutbox.send

    def send(outbox: UnitOutbox, message: trainer_pb2.FromSidecar, cancelled: Any) -> None:
        if message.HasField("difference"):
            sent.append(message.difference.generation)
        real(outbox, message, cancelled)

    monkeypatch.setattr(UnitOutbox, "send", send)
    system.add_sidecar()
    reader = system.connect()
    for _ in range(2):
        with pytest.warns(ReplayWarning, match="split 3 differs") as caught:
            assert sum(map(len, batches(reader))) == ROWS
        assert len(caught) == 1
    assert len(set(sent)) == len(sent), "once in a generation"
    reader.close()


def test_every_epoch_has_all_rows(system: System) -> None:
    system.add_sidecar()
    reader = system.connect()
    for _ in range(3):
        assert sorted(itertools.chain.from_iterable(batches(reader))) == list(range(ROWS))
    reader.close()


def test_the_first_position_after_a_restore_is_of_the_new_number_of_trainers(
    system: System,
) -> None:
    """Whole elements: a trainer takes more units in a step if there are fewer trainers."""
    system.add_sidecar(batching={})
    reader = system.connect()
    expected = [row for batch in batches(reader) for row in batch]
    position = restored_by_two(reader.position())
    for done in (2, 3, 4, 5):  # two trainers took one element each
        reader.restore(position)
        assert [row for batch in batches(reader) for row in batch] == expected[done:]
        reader.restore(position)
        next(reader.units(reader.begin()))
        position = reader.position()
        assert position.consumers == 1
    reader.close()


def test_positions_behind_the_start_of_an_epoch_have_its_excluded_records(system: System) -> None:
    records = [{"step": "__getitem__", "index": 3}]
    system.add_sidecar(badRecords={"exclude": records})
    reader = system.connect()
    start = reader.position()
    expected = start.excluded
    assert expected
    for done in range(3):
        start.excluded = 0  # saved without the list
        reader.restore(start)
        for _ in zip(range(done), reader.units(reader.begin()), strict=False):
            pass
        position = reader.position()
        assert (position.step, position.excluded) == (done, expected)
    position.excluded = 0
    reader.restore(position)
    with pytest.raises(PositionError, match=r"spec\.badRecords\.exclude has changed"):
        reader.begin()
    reader.close()


def restored_by_two(position: trainer_pb2.Position) -> trainer_pb2.Position:
    """Return the position of two trainers after their first step."""
    start = trainer_pb2.Position()
    start.CopyFrom(position)
    for name in ("end", "anchors", "prefixes", "base_rows", "base_step", "extra_units"):
        start.ClearField(name)
    start.step, start.consumers, start.epoch = 1, 2, 0
    return start


# With the steps that the test gives.


class GivenSteps:
    """Steps whose batches have blocks of these numbers of rows. The rows are 0, 1, 2, ...

    The others have full batches for `others` steps.
    """

    def __init__(self, run: Run, batches: Sequence[Sequence[int]], others: int) -> None:
        self.done, self.barrier = 0, self
        self.is_alone = others < 0
        self._run, self._batches, self._others = run, list(batches), others
        self._rows = itertools.count()
        self.ended: list[set[int]] = []  # after each batch

    def next(self, rows: int) -> Iterator[RowBlock]:
        """Yield the blocks of the next batch."""
        self._run.add(f"batch of {rows}")
        self._run.on_batch()
        for count in self._batches.pop(0) if self._batches else []:
            values = np.array(list(itertools.islice(self._rows, count)), np.int64)
            yield RowBlock(0, count, (values.view(np.uint8),), np.zeros(count, np.uint64))

    def state(self, begun: int = 0) -> trainer_pb2.Position:
        """Return the position."""
        return trainer_pb2.Position(step=self.done, extra_units=begun)

    def close(self) -> None:
        """Add the event."""
        self._run.add("close")

    def any_has_rows(self, steps: int) -> bool:
        """Return whether the others have rows."""
        self._run.add(f"others after {steps}?")
        return steps < self._others

    all_have_full_step = any_has_rows

    def ended_sources(self) -> set[int]:
        """Return the sources that have ended."""
        return self.ended.pop(0) if self.ended else set()

    def leave_out(self, sources: Collection[int]) -> bool:
        """Add the event. No source is left without two of them."""
        self._run.add(f"without {sorted(sources)}")
        return len(sources) < 2


class Run:
    """A run of generation 7, its outbox and its exchange.

    `events` is what it does, in order. `held` are the slots in use when each unit is sent.
    """

    closed = has_unsent = trainer_waits = False

    def __init__(
        self,
        folder: Path,
        monkeypatch: pytest.MonkeyPatch,
        batches: Sequence[Sequence[int]],
        others: int,
        position: trainer_pb2.Position | None = None,
        rows: int = 8,
        **fields: Any,
    ) -> None:
        self.events: list[str] = []
        self.held: list[int] = []
        self.on_batch: Callable[[], None] = lambda: None
        self.on_sent: Callable[[], None] = lambda: None
        self.job = types_pb2.Job(
            partitions=4, num_splits=4, global_batch_size=2 * rows, row_spec=NUMBERS.to_json()
        )
        self.job.MergeFrom(types_pb2.Job(**fields))
        share = share_of(self.job, 0, 1 if others < 0 else 2, rows // 2 if rows else 1)
        self.slots = SlotPool(folder / "slots", 64 * ALIGN)
        given: Any = GivenSteps(self, batches, others)
        self.steps: GivenSteps = given
        monkeypatch.setattr(EpochSteps, "open", lambda *_: given)
        monkeypatch.setattr(EpochReader, "read_ahead", lambda _: self.add("read ahead"))
        monkeypatch.setattr(EpochReader, "close", lambda _: self.add("close"))
        own: Any = self
        source = RowSource(self.job, own, PartitionFacts(), own, StreamStats(), ReadAhead(1), 30.0)
        request = EpochRequest(0, 7, position)
        self.run = EpochRun(request, source, share, self.slots, own, self._sent)
        assert not self.run.done

    def allocate(self, size: int, cancelled: threading.Event, timeout_seconds: float) -> int:
        """Return a free slot."""
        slot = self.slots.allocate(size, 0.0, cancelled)
        assert slot is not None
        return slot

    def deliver(self) -> list[str]:
        """Run to the end. Return what was sent, asked and requested."""
        self.run._run()
        self.slots.close()
        hidden = ("check", "read ahead", "close", "sent", "batch")
        return [event for event in self.events if not event.startswith(hidden)]

    def add(self, event: str) -> None:
        """Add an event."""
        self.events.append(event)

    def _sent(self, run: EpochRun) -> None:
        assert run is self.run
        self.add("sent")
        self.on_sent()

    # The exchange.

    def check_run(self) -> None:
        """Add the event."""
        self.add("check")

    next_heartbeat = 1

    def check_others(self, epoch: int, since: int, waited: float) -> None:
        """Do nothing: the others read on."""

    def request_heartbeat(self) -> None:
        """Add the event."""
        self.add("heartbeat")

    def publish_facts(self, seconds: float, cancelled: threading.Event) -> bool:
        """Add the event."""
        self.add("publish")
        return True

    # The outbox.

    def flush(self, cancelled: threading.Event) -> None:
        """Add the event."""
        self.add("flush")

    def send(self, message: trainer_pb2.FromSidecar, cancelled: threading.Event) -> None:
        """Add the message."""
        kind = message.WhichOneof("message")
        assert kind is not None
        content = getattr(message, kind)
        assert content.generation == 7
        rest = [str(value) for each, value in content.ListFields() if each.name != "generation"]
        self.add(" ".join([kind, *rest]))

    def send_unit(self, unit: trainer_pb2.Unit, cancelled: threading.Event) -> None:
        """Add the unit: its index, its rows, and "step.units" of the position after it."""
        assert unit.generation == 7
        self.held.append(self.slots.slots)
        offset, size = unit.offsets[0], unit.sizes[0]
        rows = self.slots.memory[offset : offset + size].view(np.int64)
        after = [f"at {unit.after.step}.{unit.after.extra_units}"] if unit.HasField("after") else []
        self.add(" ".join(["unit", f"{unit.index}:", *map(str, rows), *after]))


Given = Callable[..., Run]


@pytest.fixture
def given(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Given:
    """A function that makes a run of the given batches, of 8 rows in 4 units. Time is frozen."""
    monkeypatch.setattr(epoch_run, "time", SimpleNamespace(monotonic=lambda: 0.0))
    return lambda *args, **fields: Run(tmp_path, monkeypatch, *args, **fields)


FIRST = ["unit 0: 0 1", "unit 1: 2 3", "unit 2: 4 5", "unit 3: 6 7 at 1.0"]
END = ["flush", "publish"]


def test_a_run_opens_reads_ahead_and_closes_in_this_order(given: Given) -> None:
    run = given([[2] * 4, [2] * 4], 2)
    run.on_sent = lambda: run.add(f"done {run.run.done}")
    run.deliver()
    hidden = ("unit", "others", "heartbeat", "flush", "publish", "end")
    assert [event for event in run.events if not event.startswith(hidden)] == [
        *["check", "batch of 8", "read ahead", "batch of 8", "read ahead", "batch of 8"],
        *["close", "sent", "done True", "close"],
    ]


def test_a_consumer_with_fewer_rows_sends_as_many_steps_as_the_others(given: Given) -> None:
    assert given([[2, 2, 2, 2], [2, 1]], 3).deliver() == [
        *FIRST,
        *["unit 4: 8 9", "heartbeat", "unit 5: 10", "unit 6:", "unit 7:"],
        *["heartbeat", "others after 2?", "unit 8:", "unit 9:", "unit 10:", "unit 11:"],
        *["heartbeat", "others after 3?", *END, "end 12"],
    ]


def test_a_consumer_alone_exchanges_nothing(given: Given) -> None:
    assert given([[2]], -1, global_batch_size=8).deliver() == [
        *["unit 0: 0 1", "unit 1:", "unit 2:", "unit 3: at 1.0"],
        *["others after 1?", "flush", "end 4"],
    ]


def test_with_pad_all_units_are_full(given: Given) -> None:
    assert given([[2, 1]], 1, remainder=types_pb2.PAD).deliver() == [
        *["unit 0: 0 1", "heartbeat", "unit 1: 2 0", "unit 2: 0 0", "unit 3: 0 0 at 1.0"],
        *["heartbeat", "others after 1?", *END, "end 4"],
    ]


@pytest.mark.parametrize(
    ("batches", "others", "asked", "dropped"),
    [
        ([[2, 2, 2, 2], [2, 1]], 9, [], "3"),
        ([[2, 2, 2, 2], [2, 2, 2, 2]], 1, ["others after 1?"], "8"),
    ],
    ids=["own rows", "others' rows"],
)
def test_with_drop_a_step_is_sent_once_all_have_its_rows(
    given: Given, batches: Any, others: int, asked: list[str], dropped: str
) -> None:
    run = given(batches, others, remainder=types_pb2.DROP)
    assert run.deliver() == [
        *["others after 0?", *FIRST, *asked, "heartbeat", *END, f"end 4 {dropped}"]
    ]
    assert run.slots.slots == 4, "the dropped rows have released their slots"


BEGUN = trainer_pb2.Position(consumers=2, extra_units=1, units_per_step=4)


def test_units_that_the_trainer_has_are_read_again(given: Given) -> None:
    run = given([[2, 2, 2, 2]], 0, BEGUN)
    assert run.deliver()[:3] == ["unit 0: 2 3", "unit 1: 4 5", "unit 2: 6 7 at 1.0"]
    assert run.held == [1, 2, 3], "the slot of the unit that is not sent is free for the others"


def test_a_step_is_read_again_without_sources_that_have_ended(given: Given) -> None:
    sources = [types_pb2.Job(num_splits=4) for _ in range(2)]
    run = given([[2] * 4, [2, 1], [2] * 4, [2] * 4], 9, remainder=types_pb2.DROP, sources=sources)
    run.steps.ended = [set(), {1}, set(), {0, 1}]
    again = ["unit 4: 11 12", "unit 5: 13 14", "unit 6: 15 16", "unit 7: 17 18 at 2.0"]
    assert [event for event in run.deliver() if not event.startswith("others")] == [
        *(*FIRST, "heartbeat", "without [1]", *again),
        *("heartbeat", "without [0, 1]", *END, "end 8 8"),
    ]


def test_a_run_has_the_weights_of_its_position(given: Given) -> None:
    log = [types_pb2.Weights(step=at, weights=[1, at + 1]) for at in (0, 3, 5)]
    sources = [types_pb2.Job(num_splits=4) for _ in range(2)]
    run = given([], 2, sources=sources).run
    assert run.weights is None
    found: list[Any] = []
    for step, units in ((2, 0), (2, 1), (4, 0), (4, 1), (9, 0)):
        position = trainer_pb2.Position(step=step, extra_units=units, weights=log)
        run.request = EpochRequest(0, 7, position)
        found.append(run.weights)
    assert found == [log[0], log[1], log[1], log[2], log[2]]
    del run._job.sources[:]
    assert run.weights is None


def test_with_another_number_of_consumers_the_first_unit_has_a_position(given: Given) -> None:
    other = trainer_pb2.Position(consumers=4, extra_units=1, units_per_step=4)
    assert given([[2, 2, 2, 2]] * 2, 0, other).deliver()[:8] == [
        *["unit 0: 0 1 at 0.1", *FIRST[1:]],
        *["unit 4: 8 9", "unit 5: 10 11", "unit 6: 12 13", "unit 7: 14 15"],
    ]


def test_the_first_unit_has_a_position_although_its_step_was_read_again(given: Given) -> None:
    other = trainer_pb2.Position(consumers=4, extra_units=1, units_per_step=4)
    sources = [types_pb2.Job(num_splits=4) for _ in range(2)]
    run = given([[2] * 4] * 2, 9, other, remainder=types_pb2.DROP, sources=sources)
    run.steps.ended = [{1}]
    units = [event for event in run.deliver() if event.startswith("unit")]
    assert units[0] == "unit 0: 8 9 at 0.1"


@pytest.mark.parametrize("remainder", [types_pb2.KEEP, types_pb2.DROP])
def test_whole_elements_end_without_a_step_of_their_own(
    given: Given, remainder: types_pb2.Remainder
) -> None:
    assert given([[1, 1], [1]], 9, rows=0, remainder=remainder).deliver() == [
        *["unit 0: 0", "unit 1: 1 at 1.0", "heartbeat", "unit 2: 2", "heartbeat", *END, "end 3"]
    ]


def test_a_position_is_sent_after_a_short_time(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = given([[2] * 4] * 5, 0)
    # The second position takes 1 ms of 20 ms, so the next is sent after 50 ms.
    times = iter([0.0, 0.0, 0.01, 0.02, 0.021, 0.069, 0.08, 0.08])
    monkeypatch.setattr(epoch_run, "time", SimpleNamespace(monotonic=lambda: next(times)))
    units = [one for one in run.deliver() if one.startswith("unit")]
    assert [one.split(" at ")[1:] for one in units[3::4]] == [["1.0"], [], ["3.0"], [], ["5.0"]]


@pytest.mark.parametrize("batches", [[], [[2, 2, 2, 2]]])
def test_a_replay_that_differs_is_reported_before_the_end_of_its_step(
    given: Given, monkeypatch: pytest.MonkeyPatch, batches: list[list[int]]
) -> None:
    monkeypatch.setattr(EpochReader, "difference", "split 3 differs")
    events = given(batches, 0).deliver()
    report = "difference split 3 differs"
    assert events.count(report) == 1
    before = "unit 3: 6 7 at 1.0" if batches else "flush"
    assert events[events.index(report) + 1] == before


@pytest.mark.parametrize(
    ("error", "message"),
    [
        (UnavailableError("no rows"), ["failure UnavailableError no rows"]),
        (DatasetFnError("row 7"), ["heartbeat", "failure DatasetFnError row 7"]),
        (OtherConsumerError("trainer 1"), ["failure DatasetFnError trainer 1"]),
        (KeyError("p"), ["failure DistributedInputError the sidecar failed: KeyError: 'p'"]),
        (Cancelled(), []),
    ],
)
def test_an_error_ends_the_run_and_is_reported(
    given: Given, error: Exception, message: list[str]
) -> None:
    run = given([], 0)

    def fail() -> None:
        raise error

    run.on_batch = fail
    assert run.deliver() == message
    assert run.events[-1] == "close"
    assert not run.run.done
    assert run.run.failed == ("row 7" if type(error) is DatasetFnError else "")


def test_an_error_after_the_end_of_the_connection_is_not_reported(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = given([], 0)

    def fail() -> None:
        raise UnavailableError("no rows")

    def send(*_: Any) -> None:
        raise Cancelled

    run.on_batch = fail
    monkeypatch.setattr(run, "send", send)
    assert run.deliver() == []


def test_cancel_waits_for_the_thread_of_a_run(given: Given) -> None:
    run = given([[2] * 4], 0)
    begun = threading.Event()

    def wait() -> None:
        begun.set()
        assert run.run._cancelled.wait(10)
        raise Cancelled

    run.on_batch = wait
    run.run.start()
    assert begun.wait(10)
    assert not run.run.cancelled
    run.run.cancel()
    assert run.run.cancelled
    assert run.events[-1] == "close"
    assert run.run._thread.daemon
    run.slots.close()


def test_a_run_may_be_cancelled_before_its_start_and_by_its_own_thread(
    given: Given, monkeypatch: pytest.MonkeyPatch
) -> None:
    run = given([[2] * 4], 0)
    run.on_sent = run.run.cancel
    run.run.start()
    run.run._thread.join(10)
    assert not any(event.startswith("failure") for event in run.events)
    run.slots.close()
    other = given([], 0)
    monkeypatch.setattr(other.slots, "wake", lambda: other.add("wake"))
    other.run.cancel()
    assert other.events == ["wake"], "a wait for a slot ends"
    other.slots.close()
