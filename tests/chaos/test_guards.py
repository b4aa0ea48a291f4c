"""The harness sees what it should: each guard of the product, taken away, is a failed schedule."""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from distributed_input.api.errors import FencedError
from testing.chaos import mutants
from testing.chaos.__main__ import told
from testing.chaos.consumers import Consumers
from testing.chaos.fleet import Fleet
from testing.chaos.run import Outcome, run
from testing.chaos.schedule import Data, Fault, Schedule, Topology
from testing.processes.forks import Forks

SLOW = Data(rows=(40, 0, 30, 25), row_bytes=200, sleep_ms=3)
QUICK = Data(rows=(40, 37, 30, 25), row_bytes=2000)
ONE = Topology(partitions=2, batch=4, determinism="strict")
TWO = Topology(partitions=4, batch=8, consumers=2)
GONE = Fault("kill_all_workers", step=5, comeback="same")


def _schedule(label: str, topology: Topology, data: Data, *faults: Fault, **more: Any) -> Schedule:
    return Schedule(0, topology, data, faults, label=label, timeout=8, deadline=40, **more)


BROKEN = _schedule("broken", ONE, SLOW, GONE)
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
FLAKY = _schedule("flaky", ONE, Data(rows=(40, 30), row_bytes=24, sleep_ms=3, flaky=True), GONE)

HELD_STEPS = 60  # some seconds' worth: the older one is told within a heartbeat
HELD = _schedule("held", ONE, Data(rows=(120, 120), row_bytes=24, sleep_ms=20))
JOBS = Topology(partitions=2, batch=4, jobs=2, epochs=2, read_ahead=2)
JOINED = _schedule("joined", JOBS, Data(rows=(60, 40, 50, 35), row_bytes=2000, sleep_ms=2))
# Blocks of several rows, which a stream that is opened again has had in part.
PARTLY = _schedule(
    "partly", dataclasses.replace(JOBS, proxied=True), Data(rows=(90, 40), row_bytes=20_000),
    Fault("cut_connection", step=4, after_bytes=100_000), Fault("crash_trainer", step=9),
    save_every=2, step_ms=5,
)  # fmt: skip
FLAKY_JOBS = _schedule(
    "flaky jobs", dataclasses.replace(ONE, jobs=2),
    Data(rows=(60, 50), row_bytes=24, sleep_ms=10, flaky=True), GONE,
)  # fmt: skip

SOUND = (BROKEN, SHARED, UNEQUAL, DROPPED, CRASHED, REWOUND, NARROW, WIDE, JOINED, PARTLY)


def _miscounted(outcome: Outcome) -> bool:
    return bool(outcome.verdict.lost or outcome.verdict.repeated)


def _disordered(outcome: Outcome) -> bool:
    return any("got rows" in complaint for complaint in outcome.verdict.complaints)


def _uneven(outcome: Outcome) -> bool:
    return any("Uneven" in p or "rows early" in p or "Hung" in p for p in outcome.problems)


def _leaky(outcome: Outcome) -> bool:
    return any("rings are not empty" in problem for problem in outcome.problems)


@pytest.mark.parametrize("schedule", SOUND, ids=lambda schedule: schedule.label)
def test_the_product_as_it_is_holds(schedule: Schedule, forks: Forks) -> None:
    outcome = run(schedule, forks)
    assert outcome.good, told(outcome)


@pytest.mark.parametrize(
    ("mutant", "schedule", "seen"),
    [
        ("resume_at_row_zero", BROKEN, _disordered),
        ("resume_one_late", BROKEN, _disordered),
        ("resume_one_early", BROKEN, _disordered),
        ("broken_stream_is_an_end", BROKEN, _miscounted),
        ("partitions_of_the_next", SHARED, _disordered),
        ("ends_alone", UNEQUAL, _uneven),
        ("drops_alone", DROPPED, _uneven),
        ("position_one_step_late", CRASHED, _disordered),
        ("position_one_step_early", CRASHED, _disordered),
        ("slots_given_back_at_once", NARROW, _miscounted),
        ("slots_leak", WIDE, _leaky),
    ],
)
def test_a_sidecar_without_a_guard_is_found_out(
    mutant: str, schedule: Schedule, seen: Callable[[Outcome], bool], forks: Forks
) -> None:
    outcome = run(schedule, forks, {"sidecar": mutant})
    assert seen(outcome), told(outcome)


@pytest.mark.parametrize(
    ("mutant", "schedule"),
    [
        (mutants.stale_units, REWOUND),
        (mutants.position_of_the_save_before, CRASHED),
    ],
)
def test_a_client_without_a_guard_is_found_out(
    mutant: Callable[[Callable[[Any, str, Any], None]], None],
    schedule: Schedule,
    forks: Forks,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    mutant(monkeypatch.setattr)
    outcome = run(schedule, forks)
    assert _disordered(outcome), told(outcome)


def _damaged(outcome: Outcome) -> bool:
    return bool(outcome.verdict.damaged)


def _wrong(outcome: Outcome) -> bool:
    return not outcome.good


@pytest.mark.parametrize(
    ("mutant", "schedule", "seen"),
    [
        ("shares_any_epoch", JOINED, _damaged),
        ("shares_any_split", JOINED, _miscounted),
        ("shares_whole_blocks", PARTLY, _wrong),
    ],
)
def test_a_worker_that_shares_without_a_guard_is_found_out(
    mutant: str, schedule: Schedule, seen: Callable[[Outcome], bool], forks: Forks
) -> None:
    outcome = run(schedule, forks, {"worker": mutant})
    assert seen(outcome), told(outcome)


def _steps_left(consumers: Consumers) -> int:
    return sum(1 for _ in iter(lambda: consumers.step()[0], None))


@pytest.mark.parametrize(
    "parts",
    [{}, {"dispatcher": "fences_nobody"}, {"sidecar": "deaf_to_fences"}],
    ids=lambda parts: " ".join(parts.values()) or "sound",
)
def test_the_older_of_two_holders_of_an_index_is_fenced_off(
    parts: Mapping[str, str], forks: Forks
) -> None:
    """Both live, each beside a sidecar of its own: the newer alone gets the rest of the epoch."""
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
    [
        (FLAKY, ""),
        (FLAKY, "digest_unchecked"),
        (FLAKY_JOBS, ""),
        (FLAKY_JOBS, "shares_unchecked"),
    ],
)
def test_a_replay_that_differs_is_refused_unless_nobody_checks(
    schedule: Schedule, worker: str, forks: Forks
) -> None:
    parts: Mapping[str, str] = {"worker": worker} if worker else {}
    outcome = run(schedule, forks, parts)
    refused = any("ReplayError" in problem for problem in outcome.problems)
    assert refused == (not worker), told(outcome)
    assert _miscounted(outcome) == bool(worker), told(outcome)
