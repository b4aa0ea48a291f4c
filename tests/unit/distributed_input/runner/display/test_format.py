"""The lines about an input."""

from __future__ import annotations

import doctest

import pytest

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import (
    ConsumerSample,
    InputStats,
    StatusSample,
    WorkerSample,
)


@pytest.mark.parametrize("module", [display, supervise])
def test_the_examples_in_docstrings(module: object) -> None:
    results = doctest.testmod(module)  # type: ignore[arg-type]
    assert results.attempted
    assert not results.failed


def answered(*rows: int, **more: object) -> InputStats:
    """A tally with an answer a second."""
    tally = InputStats()
    for now, count in enumerate(rows):
        fields: dict[str, object] = {"rows": count, "batches": count // 10, "buffer": 0.5}
        fields.update(wall=float(now), wait=now / 4, **more)
        consumer = ConsumerSample("train", 0, "a", **fields)  # type: ignore[arg-type]
        tally.add(StatusSample([consumer], [WorkerSample("w", "h:1")]), float(now))
    return tally


def test_a_flowing_input() -> None:
    assert formatting.live("train", answered(0, 12000, 24000), 2) == (
        "train: epoch 1 | 24k rows | 12k rows/s | 1200 batches/s | stall 25% | buffer 50% | "
        "workers 1/2"
    )


def test_an_input_that_came_to_a_halt_says_what_it_waits_for() -> None:
    line = formatting.live("train", answered(*[500] * 9, waiting_for="a worker"), 2)
    assert line.endswith("workers 1/2 | waiting for: a worker")


def test_numbers_of_a_dispatcher_that_is_away_are_said_to_be_old() -> None:
    tally = answered(0, 500)
    tally.add(None, 2.0)
    line = "train: epoch 1 | 500 rows or more | no news: the dispatcher is away"
    assert formatting.live("train", tally, 2) == line


def test_before_the_first_rows_there_is_nothing_but_what_is_waited_for() -> None:
    line = formatting.live("train", answered(0, 0, waiting_for="split 3"), 2)
    assert line == "train: waiting for: split 3 | workers 1/2"


def test_mismatches_are_shown_once_there_are_any() -> None:
    assert "replay mismatches 2" in formatting.live("train", answered(0, 10, mismatches=2), 1)


def test_a_table_has_columns() -> None:
    rows = [("name", "n"), ("a", "1"), ("long-name", "100")]
    assert formatting.table(rows) == "  name         n\n  a            1\n  long-name  100\n"
