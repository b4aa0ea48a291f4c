"""The tables of `top`: what happened between two samples."""

from __future__ import annotations

import pytest

from distributed_input.runner.commands.top import as_json, as_text
from distributed_input.runner.display.stats import StatusSample
from tests.unit.distributed_input.runner.samples import consumer, worker


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(first)]
    return line.split()


def test_rates_are_those_between_the_samples():
    before = StatusSample(
        [consumer(epoch=1, rows=1000, wait_seconds=50.0, wall_seconds=100.0)],
        [worker(rows=500, busy_seconds=10.0, permit_seconds=20.0)],
    )
    after = StatusSample(
        [consumer(epoch=2, rows=1200, wait_seconds=51.0, wall_seconds=104.0, buffer_fill=0.5)],
        [worker(rows=700, busy_seconds=16.0, open_streams=3, permit_seconds=28.0)],
    )
    text = as_text(as_json(before, after, 4.0))
    assert cells(text, "train/0") == ["train/0", "2", "50.0", "25%", "50%"]
    assert cells(text, "w:1") == ["w:1", "3", "50.0", "75%"]
    values = as_json(before, after, 4.0)
    assert values["seconds"] == 4.0
    (one,), (made_by,) = values["consumers"], values["workers"]
    assert (one["rows_per_second"], one["waits"]) == (50.0, 0.25)
    assert (made_by["rows_per_second"], made_by["busy"], made_by["busy_share"]) == (50.0, 1.5, 0.75)


def test_a_worker_is_busy_with_at_most_all_of_its_cpus():
    """Its last heartbeats may be three seconds apart in an interval of two."""
    before = StatusSample(workers=[worker(busy_seconds=10.0, permit_seconds=20.0)])
    after = StatusSample(workers=[worker(busy_seconds=16.1, permit_seconds=26.0)])
    assert cells(as_text(as_json(before, after, 2.0)), "w:1")[3] == "100%"


@pytest.mark.parametrize("earlier", [[], [consumer(rows=900, wait_seconds=5.0, wall_seconds=90.0)]])
def test_a_trainer_that_opened_its_job_since_then_counts_from_its_start(earlier):
    now = StatusSample([consumer(rows=30, wait_seconds=1.0, wall_seconds=2.0)])
    text = as_text(as_json(StatusSample(earlier), now, 4.0))
    assert cells(text, "train/0")[2:4] == ["15.0", "50%"]


def test_a_new_worker_has_no_rate():
    after = StatusSample(workers=[worker()])
    text = as_text(as_json(StatusSample(), after, 4.0))
    assert as_json(StatusSample(), after, 4.0)["workers"][0]["busy"] is None
    assert cells(text, "w:1") == ["w:1", "0", "-", "-"]
    assert "no trainer is connected" in text


def test_nothing_is_there():
    assert "no worker is registered" in as_text(as_json(StatusSample(), StatusSample(), 1.0))
