"""The worker's permits follow the CPUs that other processes leave idle."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from distributed_input.worker.host.cpu_times import CpuPool, CpuTimes
from distributed_input.worker.host.idle_share import (
    TICK_SECONDS,
    HostUse,
    IdleCpus,
    IdleShare,
    host_use,
    next_share,
)

SECOND = round(1 / TICK_SECONDS)


def use_of(cpus: float, others: float, permits: int) -> HostUse:
    """Return the use of a host whose scheduler prefers the other processes.

    Args:
        cpus: CPUs of the host.
        others: CPUs that the other processes need.
        permits: permits of the worker.
    """
    others = min(others, cpus)
    own = min(cpus - others, permits)
    usable = cpus - max(0.25, 0.05 * cpus)
    return HostUse(usable - others, usable - others - own)


def run(
    others: Sequence[float],
    cpus: float = 8,
    most: int = 8,
    share: IdleShare | None = None,
) -> list[IdleShare]:
    """Return the shares over time. `others` has the CPUs that other processes need in each tick."""
    found, share = [], share or IdleShare()
    for needed in others:
        share = next_share(share, use_of(cpus, needed, share.permits), most)
        found.append(share)
    return found


def permits(shares: Sequence[IdleShare]) -> list[int]:
    return [share.permits for share in shares]


FULL = run([0.0] * 40)[-1]


def test_the_share_grows_when_cpus_are_idle() -> None:
    found = permits(run([0.0] * 8 * SECOND))
    assert found[: SECOND - 1] == [1] * (SECOND - 1)
    assert found[2 * SECOND] == 8


@pytest.mark.parametrize(("others", "expected"), [(2.0, 6), (6.4, 2), (6.8, 1), (20.0, 1)])
def test_the_share_shrinks_within_a_second(others: float, expected: int) -> None:
    found = permits(run([others] * SECOND, share=FULL))
    assert found[-1] == expected


def test_two_cpus_are_both_used_while_the_trainer_waits() -> None:
    assert permits(run([0.2] * 2 * SECOND, cpus=2, most=2))[-1] == 2
    assert permits(run([1.0] * 2 * SECOND, cpus=2, most=2))[-1] == 1


def test_a_short_peak_removes_no_permit() -> None:
    others = [2.0] * 8 + [2.6] + [2.0] * 8
    assert set(permits(run(others, share=run([2.0] * 40)[-1]))) == {6}


def test_the_share_does_not_follow_each_step_of_a_trainer() -> None:
    """The trainer uses six CPUs in one tick of four, so permits would wait for a CPU."""
    found = permits(run([6.0, 0.0, 0.0, 0.0] * 10))
    assert set(found[2 * SECOND :]) == {2}


def test_the_share_shrinks_where_other_processes_are_not_preferred() -> None:
    """Both processes have one thread for each CPU, and the scheduler treats them alike."""
    share = run([0.0] * 80, cpus=64, most=64)[-1]
    assert share.permits == 61
    for _ in range(4 * SECOND):
        own = 64 * share.permits / (64 + share.permits)
        share = next_share(share, HostUse(64 * 0.95 - (64 - own), -3.2), 64)
    assert share.permits == 1


def test_permits_are_lent_only_while_cpus_are_idle() -> None:
    assert next_share(IdleShare(), HostUse(2.0, 1.9), 4).may_lend
    assert not next_share(IdleShare(), HostUse(2.0, -0.1), 4).may_lend


@given(st.lists(st.floats(-4, 200), max_size=60), st.integers(1, 128))
def test_there_is_always_a_permit_and_never_more_than_the_maximum(
    others: list[float], most: int
) -> None:
    assert all(1 <= count <= most for count in permits(run(others, cpus=64, most=most)))


@given(
    st.floats(0, 70), st.integers(1, 64), st.lists(st.floats(0, 70), max_size=30),
    st.lists(st.floats(-0.15, 0.15), min_size=40, max_size=40),
)  # fmt: skip
@example(1.375, 60, [], [0.0] * 36 + [-0.125] * 4)
@example(59.6875, 2, [0.0] * 4, [0.0] * 39 + [0.125])
def test_the_share_settles_whatever_came_before(
    others: float, most: int, before: list[float], noise: list[float]
) -> None:
    """Small changes of the other processes' use add or remove one permit at most, and only once."""
    start = run(before, cpus=64, most=most)
    needed = [max(0.0, others + change) for change in noise]
    found = permits(run(needed, cpus=64, most=most, share=start[-1] if start else None))
    room = 64 * 0.95 - others
    settled = found[5 * SECOND :]
    assert settled in (sorted(settled), sorted(settled, reverse=True))
    assert abs(settled[-1] - settled[0]) <= 1
    assert found[-1] <= max(1, room + 0.9 + 0.15)
    assert found[-1] >= min(most, max(1, int(room - 1.2)))


@given(st.lists(st.floats(0, 8), max_size=40))
def test_a_busier_host_never_gives_a_larger_share(others: list[float]) -> None:
    calm = permits(run(others))
    busier = permits(run([one + 1 for one in others]))
    assert all(few <= many for few, many in zip(busier, calm, strict=True))


# The use, from two readings.


def times(
    time: float, own: float, *used: float, cpus: Callable[[int], float] = lambda _: 4.0
) -> CpuTimes:
    return CpuTimes(time, own, tuple(CpuPool(cpus(i), one) for i, one in enumerate(used)))


def test_the_workers_own_use_leaves_room() -> None:
    use = host_use(times(10, 5, 100), times(12, 8, 106))
    assert (use.room, use.idle) == (2.25, 0.75)


def test_the_pool_with_the_least_room_counts() -> None:
    cpus = [64.0, 2.0]
    before = times(0, 0, 0, 0, cpus=cpus.__getitem__)
    after = times(1, 0.5, 10, 1, cpus=cpus.__getitem__)
    assert host_use(before, after).room == 2 - 0.25 - 0.5


def test_a_large_host_keeps_a_larger_reserve() -> None:
    before, after = (times(t, 0, 0, cpus=lambda _: 100.0) for t in (0, 1))
    assert host_use(before, after).room == 95.0


def test_the_permits_follow_the_host() -> None:
    now, used = 0.0, 0.0
    found: list[tuple[int, bool]] = []

    def read() -> CpuTimes:
        return CpuTimes(now, 0.0, (CpuPool(4, used),))

    cpus = IdleCpus(3, lambda *share: found.append(share), read)
    for _ in range(6):
        now += 0.25
        cpus.tick()
    for _ in range(4):
        now, used = now + 0.25, used + 1.0
        cpus.tick()
    assert found[0] == (1, False)
    assert found[6] == (3, True)
    assert found[-1] == (1, False)


def test_the_thread_ticks() -> None:
    ticks, enough = itertools.count(), threading.Event()

    def resize(_permits: int, _may_lend: bool) -> None:
        if next(ticks) == 2:
            enough.set()

    IdleCpus(2, resize).start()
    assert enough.wait(10)
