"""Looks between reconciliations: what is news, and how often values are written."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from distributed_input_operator import metrics
from distributed_input_operator.autoscaling.rates import Measurement, SkippedRecords
from distributed_input_operator.controller import input_metrics
from distributed_input_operator.controller import looks as schedule
from distributed_input_operator.controller.looks import Looks, Seen, is_news
from tests.unit.distributed_input_operator.snapshots import snapshot

KEY = ("team", "digits")
BUSY = Measurement(consumers=2, demand=400.0, busy_rate=100.0, useful_workers=8)
SEEN = Seen(1, autoscaling=True).with_measurement(BUSY)


@pytest.mark.parametrize(
    ("change", "news"),
    [
        ({}, False),
        ({"rows_per_second": 5.0, "stall": 0.4, "batches": 3}, False),
        ({"consumers": 3}, True),
        ({"consumers": 0}, True),
        ({"stalled": "split 3"}, True),
        ({"mismatches": 1}, True),
        ({"failing": "no file"}, True),
        ({"skipped": SkippedRecords(1, "record 1")}, True),
        ({"demand": 600.0}, True),
        ({"demand": 200.0}, False),
        ({"demand": None}, True),
        ({"useful_workers": 9}, True),
        ({"useful_workers": 7}, False),
        ({"useful_workers": 0}, True),
    ],
)
def test_only_what_must_not_wait_is_news(change, news):
    assert is_news(SEEN, SEEN.with_measurement(replace(BUSY, **change))) is news


def test_more_skipped_records_are_no_news():
    seen = SEEN.with_measurement(replace(BUSY, skipped=SkippedRecords(1, "record 1")))
    assert not is_news(seen, seen.with_measurement(replace(BUSY, skipped=SkippedRecords(9, "r"))))


def test_without_autoscaling_the_demand_is_no_news():
    seen = Seen(1, autoscaling=False).with_measurement(BUSY)
    assert not is_news(seen, seen.with_measurement(replace(BUSY, demand=6000.0)))


def test_values_of_many_inputs_are_written_less_often():
    looks = Looks(Dispatchers([]).look, ignore)
    for number in range(600):
        looks._seen[("team", str(number))] = SEEN
        if number == 299:
            assert looks.write_seconds == 30.0
    assert looks.write_seconds == 60.0


def ignore(_: Any) -> None: ...


async def test_an_expected_input_counts_once_until_it_is_forgotten():
    looks = Looks(Dispatchers([]).look, ignore)
    for number in range(599):
        looks.expect(("team", str(number)))
    looks.expect(KEY)
    assert looks.write_seconds == 60.0
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    looks.expect(KEY)
    assert looks.write_seconds == 60.0
    looks.forget(KEY)
    looks.forget(("team", "0"))
    assert looks.write_seconds == 59.8


class Dispatchers:
    """Answers, the last one again and again."""

    def __init__(self, answers: list[Any]) -> None:
        self.answers, self.asked = answers, 0

    async def look(self, _: Any) -> Measurement | None:
        self.asked += 1
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer


@pytest.mark.parametrize(
    ("answers", "asked"),
    [
        ([BUSY, BUSY, replace(BUSY, consumers=1)], 3),
        ([BUSY, None], 2),
        ([BUSY, ValueError("a bug")], 2),
    ],
)
async def test_looks_repeat_until_a_reconciliation_is_needed(monkeypatch, answers, asked):
    monkeypatch.setattr(schedule, "reconcile_interval", lambda _: 0.001)
    client = Dispatchers(answers)
    looks = Looks(client.look, ignore)
    needed = asyncio.Event()

    def reconcile(key: Any) -> None:
        assert key == KEY
        looks.forget(KEY)
        needed.set()

    running = asyncio.create_task(looks.run(reconcile))
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    await asyncio.wait_for(needed.wait(), 20)
    running.cancel()
    await asyncio.wait([running])
    assert len(looks) == 0
    assert client.asked == asked


async def test_an_input_that_is_forgotten_in_the_queue_is_not_measured():
    """That would open a connection, which nothing would close."""
    client = Dispatchers([BUSY])
    looks = Looks(client.look, ignore)
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    looks.forget(KEY)
    assert not await looks._look(KEY)
    assert client.asked == 0


async def test_a_look_sets_the_gauges():
    busier = replace(BUSY, rows_per_second=7.0, stall=0.2)
    looks = Looks(Dispatchers([busier]).look, ignore)
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    assert not await looks._look(KEY)
    page = metrics.exposition().decode()
    assert 'distributed_input_rows_per_second{input="digits",namespace="team"} 7.0' in page
    assert 'distributed_input_stall_ratio{input="digits",namespace="team"} 0.2' in page
    input_metrics.remove_input(KEY)


async def test_news_that_a_reconciliation_does_not_record_is_reported_once():
    """An input with an invalid spec is not measured by its reconciliation."""
    looks = Looks(Dispatchers([replace(BUSY, consumers=3)]).look, ignore)
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    assert [await looks._look(KEY) for _ in range(3)] == [True, False, False]


@pytest.mark.parametrize(
    "after",
    [
        replace(snapshot(), measured=Measurement()),
        replace(snapshot(), measured=None),
        replace(snapshot(suspend=True), measured=BUSY),
    ],
    ids=["no trainers", "not measured", "suspended"],
)
async def test_an_input_that_is_looked_at_no_longer_needs_no_connection(after):
    closed: list[Any] = []
    looks = Looks(Dispatchers([]).look, closed.append)
    looks.record(KEY, replace(snapshot(), measured=BUSY))
    assert len(looks) == 1
    assert closed == []
    looks.record(KEY, after)
    assert len(looks) == 0
    assert closed == [KEY]


async def test_slow_dispatchers_of_a_few_namespaces_do_not_stop_the_looks_at_others():
    """A namespace has at most 16 requests."""
    asked = asyncio.Event()

    async def look(key: Any) -> Measurement:
        if key == KEY:
            asked.set()
        return await asyncio.get_running_loop().create_future()

    looks = Looks(look, ignore)
    for key in [*((f"slow-{number % 4}", str(number)) for number in range(4 * 16)), KEY]:
        looks._seen[key] = SEEN
        looks._queue.add(key)
    running = asyncio.create_task(looks.run(lambda _: None))
    await asyncio.wait_for(asked.wait(), 20)
    running.cancel()
    await asyncio.wait([running], timeout=20)
