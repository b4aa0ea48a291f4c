"""Totals and rates from samples of dispatchers."""

from __future__ import annotations

import pytest

from distributed_input.api.proto import types_pb2
from distributed_input.runner.display.stats import (
    Consumer,
    HostCpus,
    InputStats,
    Rates,
    StatusSample,
    rows_by_address,
    source_windows,
)
from tests.unit.distributed_input.runner import samples
from tests.unit.distributed_input.runner.samples import worker


def consumer(rows: int, start: str = "a", trainer: str = "", **more: object) -> Consumer:
    fields: dict[str, object] = {"batches": rows // 10, "wall_seconds": rows / 100, **more}
    return samples.consumer(trainer, incarnation=start, rows=rows, **fields)


def stats_of(*samples: tuple[float, StatusSample | None]) -> InputStats:
    stats = InputStats()
    for now, sample in samples:
        stats.add(sample, now)
    return stats


def test_a_restarted_sidecar_adds_to_the_totals():
    stats = stats_of(
        (0, StatusSample([consumer(100, "a", replay_mismatches=1)])),
        (1, StatusSample([consumer(40, "b")])),
        (2, StatusSample([consumer(60, "b", epoch=3)])),
    )
    totals = stats.totals()
    assert (totals.rows, totals.batches, totals.mismatches, totals.epochs) == (160, 16, 1, 4)


def test_a_trainer_counts_over_all_its_sidecars():
    stats = stats_of(
        (0, StatusSample([consumer(0, "a")])),  # before the trainer connects
        (1, StatusSample([consumer(100, "a", trainer="t", replay_mismatches=1)])),
        (2, StatusSample([consumer(0, "b")])),
        (
            3,
            StatusSample([consumer(180, "b", trainer="t", wait_seconds=0.5)]),
        ),  # 60 of them unseen in "a"
    )
    totals = stats.totals()
    assert (totals.rows, totals.batches, totals.wall, totals.wait) == (180, 18, 1.8, 0.5)
    assert totals.mismatches == 1
    stats.add(StatusSample([consumer(20, "b", trainer="restarted")]), 4)
    assert stats.totals().rows == 200


def test_a_closed_reader_keeps_its_totals():
    # The same sidecar counts from zero for the trainer's next reader.
    samples = [
        consumer(100, wait_seconds=2.0),
        consumer(0),
        consumer(40),
        consumer(60, wait_seconds=1.0),
    ]
    totals = stats_of(*((t, StatusSample([one])) for t, one in enumerate(samples))).totals()
    assert (totals.rows, totals.wait) == (160, 3.0)


def test_a_restarted_dispatcher_keeps_the_totals():
    stats = stats_of(
        (0, StatusSample([consumer(100)], [worker(rows=100)])),
        (1, StatusSample()),
    )
    assert stats.totals().rows == 100
    assert rows_by_address(stats) == {"w:1": (100, 0.0)}


def test_a_consumer_without_batches_counts_no_epoch():
    assert stats_of((0, StatusSample([consumer(0)]))).totals().epochs == 0


def test_rates_cover_only_the_window():
    samples = [(t, StatusSample([consumer(1000 * min(t, 10))])) for t in range(30)]
    assert stats_of(*samples[:11]).rates() == Rates(rows=1000, batches=100, stall=0.0)
    assert stats_of(*samples).rates() == Rates(rows=0, batches=0, stall=None)


def test_stall_is_the_share_of_time_spent_waiting():
    stats = stats_of(
        (0, StatusSample([consumer(0, wall_seconds=0.0)])),
        (2, StatusSample([consumer(10, wall_seconds=2.0, wait_seconds=0.5)])),
        (4, StatusSample([consumer(20, wall_seconds=4.0, wait_seconds=1.5)])),
    )
    assert stats.totals().stall == pytest.approx(0.375)
    assert stats.rates().stall == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("sample", "waiting"),
    [
        (None, "dispatcher"),
        (StatusSample(), "worker"),
        (StatusSample(workers=[worker(draining=True)]), "worker"),
        (
            StatusSample(workers=[worker()]),
            "trainer to connect, or its dataset to be described",
        ),
        (StatusSample([consumer(0, waiting_for="a worker")]), "a worker"),
        (StatusSample([consumer(0)], [worker()]), "first rows"),
    ],
)
def test_the_reason_for_waiting(sample, waiting):
    assert stats_of((0, sample)).waiting_for(desired_workers=2) == waiting


def test_there_is_no_reason_for_waiting_while_rows_are_delivered():
    workers = [worker()]
    stats = stats_of(
        (0, StatusSample([consumer(0, waiting_for="rows")], workers)),
        (1, StatusSample([consumer(10, waiting_for="rows")], workers)),
    )
    assert stats.waiting_for(2) == ""


def test_the_buffer_fill_ignores_finished_consumers():
    live, done = consumer(1, "a", buffer_fill=0.5), consumer(1, "b", buffer_fill=1.0, finished=True)
    assert stats_of((0, StatusSample([live, done]))).buffer == 0.5


def test_rounding_makes_no_share_below_0():
    assert HostCpus(2.0 - 1e-9, 9.0).busy_since(HostCpus(2.0, 8.0)) == 0


def test_sources_are_counted_since_a_sample_or_since_the_start_of_a_sidecar():
    def mixed(start: str, rows: int, waits: float) -> Consumer:
        web = types_pb2.SourceTotals(source="web", rows=rows, wait_seconds=waits)
        return consumer(0, start, index=int(start == "c"), sources=[web])

    before = StatusSample([mixed("a", 50, 1.0), mixed("c", 10, 0.5)])
    for start, rows, waits in (("a", 20, 0.5), ("b", 70, 1.5)):
        after = StatusSample([mixed(start, 70, 1.5), mixed("c", 15, 0.5)])
        assert source_windows(before, after) == {"train": [("web", rows + 5, waits)]}
    assert source_windows(before, StatusSample([consumer(9)])) == {}
