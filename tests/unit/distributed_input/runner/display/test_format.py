"""Statistics as text."""

from __future__ import annotations

import doctest
from typing import Any

import pytest

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import InputStats, StatusSample
from tests.unit.distributed_input.runner.samples import STALL, STALLED, consumer, worker


def test_the_examples_in_docstrings_are_right():
    results = doctest.testmod(formatting)
    assert results.attempted
    assert not results.failed


def sampled(*rows: int, **more: object) -> InputStats:
    """Return statistics with one sample per second."""
    stats = InputStats()
    for now, count in enumerate(rows):
        fields: dict[str, Any] = {"rows": count, "batches": count // 10, "buffer_fill": 0.5}
        fields.update(wall_seconds=float(now), wait_seconds=now / 4, **more)
        stats.add(StatusSample([consumer(**fields)], [worker()]), float(now))
    return stats


def test_an_input_that_delivers_rows_shows_its_rates():
    assert formatting.progress_line("train", sampled(0, 12000, 24000), 2) == (
        "train: epoch 1 | 24k rows | 12k rows/s | 1200 batches/s | stall 25% | buffer 50% | "
        "workers 1/2"
    )


@pytest.mark.parametrize(
    ("stats", "ending"),
    [
        (sampled(*[500] * 9, waiting_for="a worker"), "workers 1/2 | waiting for: a worker"),
        (sampled(0, 0, waiting_for="split 3"), "train: waiting for: split 3 | workers 1/2"),
        (sampled(0, 10, replay_mismatches=2), "workers 1/2 | replay mismatches 2"),
    ],
)
def test_what_needs_attention_is_at_the_end(stats, ending):
    assert formatting.progress_line("train", stats, 2).endswith(ending)


def test_an_unreachable_dispatcher_is_shown_with_the_last_count():
    stats = sampled(0, 500)
    stats.add(None, 2.0)
    line = "train: epoch 1 | at least 500 rows | dispatcher not reachable"
    assert formatting.progress_line("train", stats, 2) == line


def test_a_table_aligns_its_columns():
    rows = [("name", "n"), ("a", "1"), ("long-name", "100")]
    assert formatting.table(rows) == "  name         n\n  a            1\n  long-name  100\n"


def test_a_split_without_progress_is_shown():
    stats = InputStats()
    stats.add(StatusSample(workers=[worker(stalled=[STALLED])]), 0.0)
    assert formatting.progress_line("train", stats, 1).endswith(f" | no progress: {STALL}")


def test_columns_of_text_are_aligned_left():
    rows = [("n", "error", "m"), ("1", "long text", "22")]
    lines = "n  error       m\n1  long text  22\n"
    assert formatting.table(rows, indent="", left=["error"]) == lines
