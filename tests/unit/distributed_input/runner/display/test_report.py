"""The final report, as text and as JSON."""

from __future__ import annotations

import json
from typing import Any

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display import report
from distributed_input.runner.display.stats import InputStats, StatusSample
from tests.unit.distributed_input.runner.samples import consumer, with_job, worker

STATS = InputStats()
STATS.add(
    StatusSample(
        [
            consumer(index=i, epoch=1, rows=600, batches=6, wait_seconds=1, wall_seconds=4)
            for i in range(2)
        ],
        [
            worker("a", rows=700, busy_seconds=2.5),
            worker("b", rows=500, busy_seconds=1.5),
        ],
    ),
    now=1.0,
)
WORKER = {"worker-0": ["a:1", "b:1"]}
ENDED = report.of_run(
    status=0,
    cause="",
    seconds=5.0,
    inputs={"train": report.of_input(STATS, WORKER, trainers=2, seconds=5.0)},
    processes={"worker-0": report.of_process(300 << 20, 1), "trainer-0": report.of_process(0)},
)


def ended(stats: InputStats, seconds: float = 5.0) -> dict[str, Any]:
    """Return the report of a run with one input, `train`."""
    one = report.of_input(stats, WORKER, trainers=1, seconds=seconds)
    return report.of_run(0, "", seconds, {"train": one}, {})


def test_the_text_has_totals_and_processes():
    assert report.as_text(ENDED) == (
        "  train: 2 epochs, 1200 rows in 12 batches, 300 rows/s, stall 25.0%\n"
        "  process    rows   busy  restarts  peak memory\n"
        "  worker-0   1200  4.0 s         1      300 MiB\n"
        "  trainer-0                                   ?\n"
    )


def test_the_warnings_of_all_samples_are_at_the_end():
    stats = InputStats()
    for now, text in enumerate(["shard it", "shard it", "no files"]):
        stats.add(with_job(warnings=[text]), now=float(now))
    stats.add(StatusSample(), now=3.0)  # the job has ended
    found = ended(stats)
    assert report.as_text(found).splitlines()[-2:] == [
        "  train: warning: shard it",
        "  train: warning: no files",
    ]
    assert found["inputs"]["train"]["warnings"] == ["shard it", "no files"]


def test_whole_elements_are_not_called_rows():
    stats = InputStats()
    one = consumer(index=0, rows=4032, batches=4032, wall_seconds=8)
    workers = [worker("a", rows=4033)]
    stats.add(StatusSample([one], workers, with_job(global_batch_size=0).jobs), now=1.0)
    stats.add(StatusSample(), now=2.0)  # the job has ended
    found = ended(stats)
    text = report.as_text(found)
    assert "1 epoch, 4032 elements in 4032 batches, 504 elements/s" in text
    assert "the workers sent 1 element that the trainer did not read" in text
    assert found["inputs"]["train"]["row"] == "element"
    stats.add(StatusSample([one]), now=3.0)
    assert "| 4032 elements |" in formatting.progress_line("train", stats, 1)


def test_the_json_has_units_in_its_names():
    assert json.loads(json.dumps(ENDED)) == {
        "version": 1,
        "status": 0,
        "cause": None,
        "wall_seconds": 5.0,
        "inputs": {
            "train": {
                "epochs": 2,
                "rows": 1200,
                "row": "row",
                "batches": 12,
                "rows_per_second": 300.0,
                "wait_seconds": 2.0,
                "iterating_seconds": 8.0,
                "stall": 0.25,
                "replay_mismatches": 0,
                "warnings": [],
                "workers": {"worker-0": {"rows": 1200, "busy_seconds": 4.0}},
            }
        },
        "processes": {
            "worker-0": {"restarts": 1, "peak_rss_bytes": 300 << 20},
            "trainer-0": {"restarts": 0, "peak_rss_bytes": None},
        },
    }


def test_rows_that_the_trainer_did_not_read_are_explained():
    stats = InputStats()
    one = consumer(index=0, rows=400, batches=6, wall_seconds=4)
    stats.add(StatusSample([one], [worker("a", rows=600)]), now=1.0)
    text = report.as_text(ended(stats))
    assert text.splitlines()[-1] == (
        "  train: the workers sent 200 rows that the trainer did not read: those read ahead, also "
        "of the next epoch, and those sent again after a restart"
    )


def test_one_batch_or_a_short_time_has_no_rate():
    """The first batch begins the time, so one batch would seem to take no time."""
    for batches, wall in ((1, 8.0), (9, 0.9)):
        stats = InputStats()
        one = consumer(index=0, rows=64, batches=batches, wall_seconds=wall)
        stats.add(StatusSample([one]), now=1.0)
        found = ended(stats, 9.0)
        assert "too short for a rate, stall" in report.as_text(found)
        assert found["inputs"]["train"]["rows_per_second"] is None


def test_an_input_without_reads_is_reported():
    text = report.as_text(ended(InputStats()))
    assert text.startswith("  train: the trainer read no rows\n")
