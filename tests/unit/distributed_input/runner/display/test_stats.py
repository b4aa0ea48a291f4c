"""How answers of dispatchers become totals and rates."""

from __future__ import annotations

import pytest

from distributed_input.runner.display.stats import (
    ConsumerSample,
    InputStats,
    Rates,
    StatusSample,
    WorkerSample,
    rows_by_address,
)


def consumer(rows: int, life: str = "a", **more: object) -> ConsumerSample:
    fields: dict[str, object] = {"batches": rows // 10, "wall": rows / 100, **more}
    return ConsumerSample("train", 0, life, rows=rows, **fields)  # type: ignore[arg-type]


def tally_of(*answers: tuple[float, StatusSample | None]) -> InputStats:
    tally = InputStats()
    for now, answer in answers:
        tally.add(answer, now)
    return tally


def test_a_restarted_sidecar_adds_to_its_former_life() -> None:
    tally = tally_of(
        (0, StatusSample([consumer(100, "a", mismatches=1)])),
        (1, StatusSample([consumer(40, "b")])),
        (2, StatusSample([consumer(60, "b", epoch=3)])),
    )
    totals = tally.totals()
    assert (totals.rows, totals.batches, totals.mismatches, totals.epochs) == (160, 16, 1, 4)


def test_a_reader_that_was_closed_takes_nothing_away() -> None:
    # The sidecar is the same, and counts from zero for a trainer's next reader.
    answers = [consumer(100, wait=2.0), consumer(0), consumer(40), consumer(60, wait=1.0)]
    totals = tally_of(*((t, StatusSample([one])) for t, one in enumerate(answers))).totals()
    assert (totals.rows, totals.wait) == (160, 3.0)


def test_a_dispatcher_that_forgot_everything_takes_nothing_away() -> None:
    tally = tally_of((0, StatusSample([consumer(100)], [WorkerSample("w", "h:1", rows=100)])), (1, StatusSample()))
    assert tally.totals().rows == 100
    assert rows_by_address(tally) == {"h:1": (100, 0.0)}


def test_a_consumer_that_has_not_begun_is_in_no_epoch() -> None:
    assert tally_of((0, StatusSample([consumer(0)]))).totals().epochs == 0


def test_rates_are_over_the_last_seconds_only() -> None:
    answers = [(t, StatusSample([consumer(1000 * min(t, 10))])) for t in range(30)]
    assert tally_of(*answers[:11]).rates() == Rates(rows=1000, batches=100, stall=0.0)
    assert tally_of(*answers).rates() == Rates(rows=0, batches=0, stall=None)


def test_stall_is_the_share_of_time_spent_waiting() -> None:
    tally = tally_of(
        (0, StatusSample([consumer(0, wall=0.0)])),
        (2, StatusSample([consumer(10, wall=2.0, wait=0.5)])),
        (4, StatusSample([consumer(20, wall=4.0, wait=1.5)])),
    )
    assert tally.totals().stall == pytest.approx(0.375)
    assert tally.rates().stall == pytest.approx(0.375)


@pytest.mark.parametrize(
    ("answer", "waiting"),
    [
        (None, "dispatcher"),
        (StatusSample(), "worker"),
        (StatusSample(workers=[WorkerSample("w", "h:1", draining=True)]), "worker"),
        (StatusSample(workers=[WorkerSample("w", "h:1")]), "trainer to ask for input"),
        (StatusSample([consumer(0, waiting_for="a worker")]), "a worker"),
        (StatusSample([consumer(0)], [WorkerSample("w", "h:1")]), "first rows"),
    ],
)
def test_what_is_waited_for(answer: StatusSample | None, waiting: str) -> None:
    assert tally_of((0, answer)).waiting_for(desired_workers=2) == waiting


def test_nothing_is_waited_for_while_rows_flow() -> None:
    workers = [WorkerSample("w", "h:1")]
    tally = tally_of(
        (0, StatusSample([consumer(0, waiting_for="rows")], workers)),
        (1, StatusSample([consumer(10, waiting_for="rows")], workers)),
    )
    assert tally.waiting_for(2) == ""


def test_the_buffer_is_that_of_readers_that_still_read() -> None:
    live, done = consumer(1, "a", buffer=0.5), consumer(1, "b", buffer=1.0, finished=True)
    assert tally_of((0, StatusSample([live, done]))).buffer == 0.5
