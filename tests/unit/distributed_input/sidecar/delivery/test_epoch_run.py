from __future__ import annotations

import itertools
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import ReplayWarning
from distributed_input.api.proto import trainer_pb2
from distributed_input.client.reader import InputReader
from distributed_input.sidecar.delivery.outbox import UnitOutbox
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from tests.unit.distributed_input.sidecar.system import BATCH, System, running

ROWS = 37  # the last batch of the epoch is not full


@pytest.fixture
def system(tmp_path: Path) -> Iterator[System]:
    with running(tmp_path, ROWS) as system:
        yield system


def batches(reader: InputReader) -> list[list[int]]:
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


def restored_by_two(position: trainer_pb2.Position) -> trainer_pb2.Position:
    """Return the position of two trainers after their first step."""
    start = trainer_pb2.Position()
    start.CopyFrom(position)
    for name in ("end", "anchors", "prefixes_v2", "base_rows", "base_step", "extra_units"):
        start.ClearField(name)
    start.step, start.consumers, start.epoch = 1, 2, 0
    return start
