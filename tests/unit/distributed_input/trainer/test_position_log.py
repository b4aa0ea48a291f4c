"""The position log returns the position behind any number of consumed units."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.trainer import position_log
from distributed_input.trainer.position_log import PositionLog, behind, parse

Position = trainer_pb2.Position
Unit = trainer_pb2.Unit


def start(epoch: int = 0) -> Position:
    return Position(job="train", epoch=epoch)


@given(steps=st.integers(1, 50), per_step=st.integers(1, 4), data=st.data())
def test_the_log_returns_for_each_step_the_position_saved_behind_it(
    steps: int, per_step: int, data: st.DataObject
) -> None:
    log = PositionLog()
    for step in range(1, steps + 1):
        log.append(step * per_step, Position(step=step, base_step=step))
    step = data.draw(st.integers(1, steps))
    extra = data.draw(st.integers(0, per_step - 1))
    found = log.at(step * per_step + extra, per_step, start())
    units = per_step if extra else 0
    assert found == Position(step=step, base_step=step, extra_units=extra, units_per_step=units)


@given(
    saved=st.sets(st.integers(1, 60)),
    units=st.integers(0, 80),
    per_step=st.integers(1, 4),
)
def test_steps_without_a_saved_position_are_counted_from_the_last_one(
    saved: set[int], units: int, per_step: int
) -> None:
    log = PositionLog()
    log.append(0, start(3))
    for step in sorted(saved):
        log.append(step * per_step, Position(job="train", epoch=3, step=step))
    found = log.at(units, per_step, start())
    assert (found.epoch, found.job) == (3, "train")
    assert found.step * per_step + found.extra_units == units


@pytest.mark.parametrize(
    ("limit", "most", "first"),
    [("HISTORY_STEPS", 3, 4), ("_MOST_BYTES", 90, 4), ("_MOST_BYTES", 1, 6)],
)
def test_positions_older_than_the_limit_are_an_error(
    monkeypatch: pytest.MonkeyPatch, limit: str, most: int, first: int
) -> None:
    monkeypatch.setattr(position_log, limit, most)
    log = PositionLog()
    for step in range(1, 7):
        log.append(step, Position(step=step, job="x" * 24))  # 28 bytes
    assert log.at(first, 1, start()).step == first
    with pytest.raises(PositionError, match="so many steps behind"):
        log.at(first - 1, 1, start())


def test_the_position_behind_units_is_that_of_the_last_one_that_has_it() -> None:
    begun, saved = Position(step=3), Position(step=5)
    plain, anchored = Unit(index=0), Unit(index=1, after=saved)
    assert behind(begun, [plain], 2) == Position(step=3, extra_units=1, units_per_step=2)
    assert behind(begun, [plain, plain], 2) == Position(step=4)
    assert behind(begun, [plain, anchored], 2) == saved
    assert behind(begun, [anchored, plain, plain, plain], 2) == Position(
        step=6, extra_units=1, units_per_step=2
    )
    assert begun == Position(step=3), "the argument stays as it was"


def test_bytes_that_are_not_a_position_are_refused() -> None:
    assert parse(start().SerializeToString()) == start()
    with pytest.raises(PositionError, match="no valid position"):
        parse(b"\xff" * 20)


def test_a_log_that_begins_with_the_first_step_has_lost_nothing() -> None:
    log = PositionLog()
    for step in (1, 2):
        log.append(2 * step, Position(step=step))
    assert log.at(1, 2, start(3)) == Position(epoch=3, extra_units=1, units_per_step=2, job="train")


READ: dict[str, Any] = {"num_splits": 4, "global_batch_size": 8, "step": 5}


def test_skipped_steps_count_as_read():
    position = trainer_pb2.Position(**READ)
    position_log.skip(position, 3)
    assert position == trainer_pb2.Position(**{**READ, "step": 8})
    position_log.skip(position, 0)
    assert position.step == 8


@pytest.mark.parametrize(
    ("fields", "steps", "kind", "message"),
    [
        ({}, -1, ConfigError, "-1 is not a number of steps"),
        ({}, 1.0, ConfigError, "is not a number of steps"),
        ({}, True, ConfigError, "is not a number of steps"),
        ({}, 1 << 41, ConfigError, "is not a number of steps"),
        (
            {"sources": [trainer_pb2.Source()]},
            50_001,
            ConfigError,
            "at most 50000 are possible at once",
        ),
        ({"num_splits": 0}, 1, PositionError, "neither read nor restored"),
        ({"global_batch_size": 0}, 1, ConfigError, "no batch size"),
        (
            {"sources": [trainer_pb2.Source()], "exhaustion": types_pb2.STOP},
            1,
            ConfigError,
            "needs spec.mixture.onExhausted: Repeat",
        ),
        (
            {"sources": [trainer_pb2.Source()], "exhaustion": types_pb2.DROP_SOURCE},
            1,
            ConfigError,
            "needs spec.mixture.onExhausted: Repeat",
        ),
        ({"end": True}, 1, PositionError, "the epoch is over"),
        ({"extra_units": 1}, 1, PositionError, "within a step"),
    ],
)
def test_what_cannot_be_skipped_is_an_error(fields, steps, kind, message):
    position = trainer_pb2.Position(**{**READ, **fields})
    with pytest.raises(kind, match=message):
        position_log.skip(position, steps)
    assert position.step == 5
