"""The thread applies each decision to the worker."""

from __future__ import annotations

import itertools
import threading

import pytest

from distributed_input.worker.host import idle_cpus as module
from distributed_input.worker.host.cpu_times import CpuPool, CpuTimes
from distributed_input.worker.host.idle_cpus import IdleCpus


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


def test_the_thread_ticks_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TICK_SECONDS", 0.001)
    ticks, enough = itertools.count(), threading.Event()

    def resize(_permits: int, _may_lend: bool) -> None:
        if next(ticks) == 5:
            enough.set()

    cpus = IdleCpus(2, resize)
    cpus.start()
    assert enough.wait(10)
    cpus.stop()
    assert not cpus._thread.is_alive()
