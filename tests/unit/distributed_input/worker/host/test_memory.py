"""The memory for buffers is half of the lowest limit."""

from __future__ import annotations

from pathlib import Path

import pytest

from distributed_input.worker.host.memory import buffer_bytes

GIB = 1 << 30
GROUP, NESTED = "proc/self/cgroup", "sys/fs/cgroup/slice"
V1, V2 = "sys/fs/cgroup/memory/memory.limit_in_bytes", "sys/fs/cgroup/memory.max"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 0),
        ({"proc/meminfo": "MemTotal:  4194304 kB\nMemFree: 1 kB\n"}, 2 * GIB),
        ({"proc/meminfo": "MemTotal:  4194304 kB\n", V2: f"{GIB}\n"}, GIB // 2),
        ({"proc/meminfo": "MemTotal:  4194304 kB\n", V2: "max\n"}, 2 * GIB),
        ({"proc/meminfo": "MemTotal:  4194304 kB\n", V1: f"{1 << 62}\n"}, 2 * GIB),
        ({V1: f"{GIB}\n"}, GIB // 2),
        ({GROUP: "0::/slice/job\n", f"{NESTED}/memory.max": f"{GIB}\n"}, GIB // 2),
        ({GROUP: "0::/slice/job\n", f"{NESTED}/job/memory.max": f"{GIB}\n"}, GIB // 2),
    ],
)
def test_half_of_the_limit_is_for_buffers(
    files: dict[str, str], expected: int, tmp_path: Path
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert buffer_bytes(tmp_path, {}) == expected
    shared = {"DISTRIBUTED_INPUT_MACHINE_WORKERS": "4"}
    assert buffer_bytes(tmp_path, shared) == expected // 4
