"""The rows of a loop's batches, by the number of units."""

from __future__ import annotations

import numpy as np
import pytest

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.trainer import lineage
from distributed_input.trainer.lineage import LineageLog


def unit(rows: int, *ranges: tuple[int, int, int]) -> trainer_pb2.Unit:
    named = [trainer_pb2.RowRange(split=s, first_row=first, rows=n) for s, first, n in ranges]
    return trainer_pb2.Unit(rows=rows, lineage=named)


PLAIN = types_pb2.Job(num_splits=8)


def test_units_of_one_step_follow_each_other_and_filled_rows_have_no_name() -> None:
    log = LineageLog()
    log.append(unit(2, (7, 0, 2)))
    log.append(unit(4, (7, 5, 2), (1, 0, 1)))
    log.append(unit(0))
    found = log.at(PLAIN, 3, 0, 2)
    assert found.source.tolist() == [""] * 6
    assert found.epoch.tolist() == [3, 3, 3, 3, 3, -1]
    assert found.split.tolist() == [7, 7, 7, 7, 1, -1]
    assert found.row.tolist() == [0, 1, 5, 6, 0, -1]
    assert found.row.dtype == np.int64
    assert log.at(PLAIN, 3, 2, 3).row.tolist() == []


def test_a_unit_that_the_log_does_not_have_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lineage, "HISTORY_STEPS", 2)
    log = LineageLog()
    with pytest.raises(PositionError, match="no batch was read"):
        log.at(PLAIN, 0, -1, 0)
    for number in range(3):
        log.append(unit(1, (number, 0, 1)))
    assert log.at(PLAIN, 0, 1, 2).split.tolist() == [1]
    with pytest.raises(PositionError, match="more than 2 batches of a replica behind"):
        log.at(PLAIN, 0, 0, 1)
    with pytest.raises(PositionError, match="no batch was read"):
        log.at(PLAIN, 0, 3, 4)


def test_rows_of_a_mixture_have_their_source_and_its_epoch() -> None:
    log = LineageLog()
    log.append(unit(5, (7, 0, 2), (8 * (1 << 40) + 2, 5, 2)))  # the numbers may be large
    sources = [
        types_pb2.Job(entry_point=types_pb2.EntryPoint(source=name), num_splits=number)
        for name, number in (("books", 3), ("web", 5))
    ]
    found = log.at(types_pb2.Job(num_splits=8, sources=sources), 3, 0, 1)
    assert found.source.tolist() == ["web", "web", "books", "books", ""]
    assert found.epoch.tolist() == [3, 3, 3 + (1 << 40), 3 + (1 << 40), -1]
    assert found.split.tolist() == [4, 4, 2, 2, -1]
    assert found.row.tolist() == [0, 1, 5, 6, -1]
