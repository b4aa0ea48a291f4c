"""CPU times from the kernel's files."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.worker.host.cpu_times import CpuPool, read_cpu_times

TICKS = os.sysconf("SC_CLK_TCK")
STAT = """\
cpu  999 999 999 999 999 999 999 999 0 0
cpu0 100 200 300 9000 8000 10 20 30 40 50
cpu1 {} 0 0 9000 0 0 0 0 0 0
cpu2 7777 0 0 0 0 0 0 0 0 0
intr 1 2 3
"""


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/stat").write_text(STAT.format(5 * TICKS))
    return tmp_path


def test_the_machines_pool_has_the_cpus_of_this_process(root: Path) -> None:
    (pool,) = read_cpu_times(root).pools
    assert pool == CpuPool(2, 660 / TICKS + 5)


def test_a_control_groups_limit_is_a_pool_of_its_own(root: Path) -> None:
    (root / "proc/self/cgroup").write_text("0::/a/b\n")
    groups = root / "sys/fs/cgroup"
    (groups / "a/b").mkdir(parents=True)
    (groups / "a/cpu.max").write_text("150000 100000\n")
    (groups / "a/cpu.stat").write_text("usage_usec 2500000\nuser_usec 1\n")
    (groups / "a/b/cpu.max").write_text("max 100000\n")
    (groups / "a/b/cpu.stat").write_text("usage_usec 1\n")
    assert read_cpu_times(root).pools[1:] == (CpuPool(1.5, 2.5),)


def test_a_host_without_these_files_is_an_error(root: Path) -> None:
    (root / "proc/stat").write_text("cpu 1 2 3\n")
    with pytest.raises(ConfigError, match="without --idle-cpus"):
        read_cpu_times(root)
    (root / "proc/stat").unlink()
    with pytest.raises(ConfigError, match="proc/stat"):
        read_cpu_times(root)


def test_this_host_can_be_read() -> None:
    first, second = read_cpu_times(), read_cpu_times()
    assert second.own >= first.own > 0
    assert second.pools[0].used >= first.pools[0].used > 0
