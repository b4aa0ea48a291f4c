"""Each guard of the product is needed: without it, the ledger reports a failed schedule."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from distributed_input.api.errors import FencedError
from testing.chaos import mutants
from testing.chaos.__main__ import describe
from testing.chaos.consumers import Consumers
from testing.chaos.fleet import Fleet
from testing.chaos.run import Outcome, run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks

SLOW = Data(rows=(40, 0, 30, 25), row_bytes=200, sleep_ms=3)
QUICK = Data(rows=(40, 37, 30, 25), row_bytes=2000)
ONE = Topology(partitions=2, batch=4, determinism="strict")
TWO = Topology(partitions=4, batch=8, consumers=2)
ALL_WORKERS_KILLED = Fault("kill_all_workers", step=5, restart="same")


def _schedule(label: str, topology: Topology, data: Data, *faults: Fault, **more: Any) -> Schedule:
    return Schedule(0, topology, data, faults, label=label, timeout=8, deadline=40, **more)


BROKEN = _schedule("broken", ONE, SLOW, ALL_WORKERS_KILLED)
SHARED = _schedule("shared", TWO, QUICK)
UNEQUAL = _schedule("unequal", TWO, Data(rows=(30, 2, 3, 1), row_bytes=24))
DROPPED = _schedule(
    "dropped", Topology(partitions=2, batch=4, consumers=2, remainder="drop"),
    Data(rows=(9, 40), row_bytes=24),
)  # fmt: skip
CRASHED = _schedule("crashed", ONE, SLOW, Fault("crash_trainer", step=9), save_every=2)
REWOUND = _schedule(
    "rewound", Topology(partitions=2, batch=4, ring_steps=16), QUICK,
    Fault("rewind_trainer", step=9), save_every=4, step_ms=5,
)  # fmt: skip
NARROW = _schedule("narrow", Topology(partitions=2, batch=4, ring_steps=3), QUICK, step_ms=1)
WIDE = _schedule("wide", Topology(partitions=2, batch=4, ring_steps=64), QUICK)
FLAKY = _schedule(
    "flaky", ONE, Data(rows=(40, 30), row_bytes=24, sleep_ms=3, flaky=True), ALL_WORKERS_KILLED
)

HELD_STEPS = 60  # several seconds; the older one is fenced within a heartbeat
HELD = _schedule("held", ONE, Data(rows=(120, 120), row_bytes=24, sleep_ms=20))
JOBS = Topology(partitions=2, batch=4, jobs=2, epochs=2, read_ahead=2)
JOINED = _schedule("joined", JOBS, Data(rows=(60, 40, 50, 35), row_bytes=2000, sleep_ms=2))
# Blocks of several rows. A reopened stream has already received a part of one.
PARTLY = _schedule(
    "partly", dataclasses.replace(JOBS, proxied=True),
    Data(rows=(90, 40), row_bytes=20_000, graph=True),
    Fault("cut_connection", step=4, after_bytes=100_000), Fault("crash_trainer", step=9),
    save_every=2, step_ms=5,
)  # fmt: skip
FLAKY_JOBS = _schedule(
    "flaky jobs", dataclasses.replace(ONE, jobs=2),
    Data(rows=(60, 50), row_bytes=24, sleep_ms=10, flaky=True), ALL_WORKERS_KILLED,
)  # fmt: skip

CORRECT = (BROKEN, SHARED, UNEQUAL, DROPPED, CRASHED, REWOUND, NARROW, WIDE, JOINED, PARTLY)


def has_lost_or_repeated_rows(outcome: Outcome) -> bool:
    return bool(outcome.verdict.lost or outcome.verdict.repeated)


def has_wrong_order(outcome: Outcome) -> bool:
    return any("got rows" in violation for violation in outcome.verdict.violations)


def has_uneven_steps(outcome: Outcome) -> bool:
    return any(
        "UnevenSteps" in p or "rows early" in p or "ConsumerTimeout" in p for p in outcome.problems
    )


def has_unreleased_slots(outcome: Outcome) -> bool:
    return any("slots are still in use" in problem for problem in outcome.problems)


def has_damaged_rows(outcome: Outcome) -> bool:
    return bool(outcome.verdict.damaged)


def has_failed(outcome: Outcome) -> bool:
    return not outcome.passed


ATTEMPTS = 4
"""Runs of a mutant. It breaks rows only if streams overlap, which depends on the machine's load."""


@pytest.mark.parametrize("schedule", CORRECT, ids=lambda schedule: schedule.label)
def test_every_schedule_passes_with_all_guards(schedule: Schedule, forks: Forks) -> None:
    outcome = run(schedule, forks)
    assert outcome.passed, describe(outcome)


@pytest.mark.parametrize(
    ("part", "mutant", "schedule", "is_reported"),
    [
        ("sidecar", "resume_at_row_zero", BROKEN, has_wrong_order),
        ("sidecar", "resume_one_late", BROKEN, has_wrong_order),
        ("sidecar", "resume_one_early", BROKEN, has_wrong_order),
        ("sidecar", "broken_stream_ends_split", BROKEN, has_lost_or_repeated_rows),
        ("sidecar", "partitions_of_next_consumer", SHARED, has_wrong_order),
        ("sidecar", "end_without_others", UNEQUAL, has_uneven_steps),
        ("sidecar", "drop_without_others", DROPPED, has_uneven_steps),
        ("sidecar", "position_one_step_late", CRASHED, has_wrong_order),
        ("sidecar", "position_one_step_early", CRASHED, has_wrong_order),
        ("sidecar", "slots_released_early", NARROW, has_lost_or_repeated_rows),
        ("sidecar", "slots_leak", WIDE, has_unreleased_slots),
        ("worker", "shares_any_epoch", JOINED, has_damaged_rows),
        ("worker", "shares_any_split", JOINED, has_lost_or_repeated_rows),
        ("worker", "shares_whole_blocks", PARTLY, has_failed),
    ],
)
def test_the_ledger_reports_a_process_without_a_guard(
    part: str,
    mutant: str,
    schedule: Schedule,
    is_reported: Callable[[Outcome], bool],
    forks: Forks,
) -> None:
    for _ in range(ATTEMPTS):
        outcome = run(schedule, forks, {part: mutant})
        if is_reported(outcome):
            return
    raise AssertionError(describe(outcome))


@pytest.mark.parametrize(
    ("mutant", "schedule"),
    [("stale_units", REWOUND), ("position_of_previous_save", CRASHED)],
)
def test_the_ledger_reports_a_client_without_a_guard(
    mutant: str, schedule: Schedule, forks: Forks, monkeypatch: pytest.MonkeyPatch
) -> None:
    mutants.apply(mutant, monkeypatch.setattr)
    outcome = run(schedule, forks)
    assert has_wrong_order(outcome), describe(outcome)


def _steps_left(consumers: Consumers) -> int:
    return sum(1 for _ in iter(lambda: consumers.step()[0], None))


@pytest.mark.parametrize(
    "parts",
    [{}, {"dispatcher": "no_fencing"}, {"sidecar": "ignore_fencing"}],
    ids=lambda parts: " ".join(parts.values()) or "no mutant",
)
def test_the_older_of_two_holders_of_an_index_is_fenced(
    parts: Mapping[str, str], forks: Forks
) -> None:
    """Both holders live, each with its own sidecar.

    Only the newer one gets the rest of the epoch.
    """
    fleet = Fleet(forks, HELD, parts)
    end = time.monotonic() + HELD.deadline
    try:
        older = Consumers([fleet.folder_of(0)], HELD, end)
        older.connect(None)
        older.begin()
        older.step()
        fleet.start_sidecars(1)
        newer = Consumers([fleet.folder_of(0)], HELD, end)
        newer.connect(older.positions())
        newer.begin()
        assert _steps_left(newer) == HELD_STEPS - 1
        if parts:
            assert _steps_left(older) == HELD_STEPS - 1
        else:
            with pytest.raises(FencedError, match="started later with the same index"):
                _steps_left(older)
        for consumers in (older, newer):
            consumers.close()
            consumers.end()
    finally:
        fleet.close()
        fleet.remove()


@pytest.mark.parametrize(
    ("schedule", "worker"),
    [(FLAKY, ""), (FLAKY, "digest_unchecked"), (FLAKY_JOBS, ""), (FLAKY_JOBS, "shares_unchecked")],
)
def test_a_different_replay_is_refused_if_it_is_checked(
    schedule: Schedule, worker: str, forks: Forks
) -> None:
    parts: Mapping[str, str] = {"worker": worker} if worker else {}
    outcome = run(schedule, forks, parts)
    refused = any("ReplayError" in problem for problem in outcome.problems)
    assert refused == (not worker), describe(outcome)
    assert has_lost_or_repeated_rows(outcome) == bool(worker), describe(outcome)
