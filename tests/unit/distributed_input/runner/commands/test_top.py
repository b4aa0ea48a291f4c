"""The tables of `top`: what happened between two samples."""

from __future__ import annotations

from distributed_input.runner.commands.top import as_json, as_text
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, WorkerSample


def trainer(**fields: object) -> ConsumerSample:
    return ConsumerSample("train", 0, "i", trainer="t", **fields)  # type: ignore[arg-type]


def cells(text: str, first: str) -> list[str]:
    (line,) = [line for line in text.splitlines() if line.startswith(first)]
    return line.split()


def test_rates_are_those_between_the_samples() -> None:
    before = StatusSample(
        [trainer(epoch=1, rows=1000, wait=50.0, wall=100.0)],
        [WorkerSample("w", "h:1", rows=500, busy=10.0, permit_seconds=20.0)],
    )
    after = StatusSample(
        [trainer(epoch=2, rows=1200, wait=51.0, wall=104.0, buffer=0.5)],
        [WorkerSample("w", "h:1", rows=700, busy=16.0, streams=3, permit_seconds=28.0)],
    )
    text = as_text(as_json(before, after, 4.0))
    assert cells(text, "train/0") == ["train/0", "2", "50.0", "25%", "50%"]
    assert cells(text, "h:1") == ["h:1", "3", "50.0", "75%"]
    values = as_json(before, after, 4.0)
    assert values["seconds"] == 4.0
    (consumer,), (worker,) = values["consumers"], values["workers"]
    assert (consumer["rows_per_second"], consumer["waits"]) == (50.0, 0.25)
    assert (worker["rows_per_second"], worker["busy"], worker["busy_share"]) == (50.0, 1.5, 0.75)


def test_a_worker_is_busy_with_at_most_all_of_its_cpus() -> None:
    """Its last heartbeats may be three seconds apart in an interval of two."""
    before = StatusSample(workers=[WorkerSample("w", "h:1", busy=10.0, permit_seconds=20.0)])
    after = StatusSample(workers=[WorkerSample("w", "h:1", busy=16.1, permit_seconds=26.0)])
    assert cells(as_text(as_json(before, after, 2.0)), "h:1")[3] == "100%"


def test_a_new_trainer_counts_from_its_start() -> None:
    text = as_text(
        as_json(StatusSample(), StatusSample([trainer(rows=30, wait=1.0, wall=2.0)]), 4.0)
    )
    assert cells(text, "train/0")[2:4] == ["15.0", "50%"]


def test_a_trainer_that_opened_its_job_again_counts_from_then() -> None:
    before = StatusSample([trainer(rows=900, wait=5.0, wall=90.0)])
    text = as_text(as_json(before, StatusSample([trainer(rows=30, wait=1.0, wall=2.0)]), 4.0))
    assert cells(text, "train/0")[2:4] == ["15.0", "50%"]


def test_a_new_worker_has_no_rate() -> None:
    after = StatusSample(workers=[WorkerSample("w", "h:1")])
    text = as_text(as_json(StatusSample(), after, 4.0))
    assert as_json(StatusSample(), after, 4.0)["workers"][0]["busy"] is None
    assert cells(text, "h:1") == ["h:1", "0", "-", "-"]
    assert "no trainer is connected" in text


def test_nothing_is_there() -> None:
    assert "no worker is registered" in as_text(as_json(StatusSample(), StatusSample(), 1.0))
