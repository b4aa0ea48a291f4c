"""The share of the CPUs that is in use, from two readings of the kernel's counters."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distributed_input.runner.host_cpus import HostCpus, busy_share, read

STAT = """\
cpu  999 999 999 999 999 999 999 999 0 0
cpu0 {} 0 0 {} 0 0 0 0 0 0
cpu1 0 0 0 0 50 0 0 {} 77 77
cpu2 7777 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


def test_only_the_time_between_the_readings_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    stat = tmp_path / "stat"
    stat.write_text(STAT.format(9000, 100, 4000))
    waits: list[float] = []

    def wait(seconds: float) -> None:
        waits.append(seconds)
        stat.write_text(STAT.format(9030, 120, 4050))

    assert busy_share(2.5, stat, wait) == 0.8
    assert waits == [2.5]


@pytest.mark.parametrize("text", [None, "", "cpu0 a b\n"])
def test_a_machine_without_counters_is_not_busy(tmp_path: Path, text: str | None) -> None:
    stat = tmp_path / "stat"
    if text is not None:
        stat.write_text(text)
    assert busy_share(2.5, stat, lambda _: None) == 0


@pytest.mark.skipif(not os.path.exists("/proc/stat"), reason="needs /proc")
def test_this_machine_can_be_read() -> None:
    assert 0 <= busy_share(0.1) <= 1
    before = read()
    assert before is not None
    assert 0 < before.used <= before.total
    assert HostCpus(before.used + 3, before.total + 4).busy_since(before) == 0.75
    assert before.busy_since(before) == 0
