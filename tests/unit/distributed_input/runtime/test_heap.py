"""Reuse of freed memory, even if TensorFlow has configured malloc otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from distributed_input.runtime import heap

PROGRAM = """
import ctypes, resource, sys
from distributed_input.runtime import heap

def faults() -> int:
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(100):
        bytearray(b"x") * (1 << 20)
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

ctypes.CDLL(None).mallopt(-1, 128 << 10)  # as TensorFlow's generator does
before = faults()
heap.keep_freed_memory(2)
print(before, faults())
"""


GROUPS = "sys/fs/cgroup"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("contents", "limit"),
    [
        ({}, None),
        ({"proc/self/cgroup": "0::/\n", f"{GROUPS}/memory.max": "1048576\n"}, 1 << 20),
        ({"proc/self/cgroup": "0::/\n", f"{GROUPS}/memory.max": "max\n"}, None),
        (
            {
                "proc/self/cgroup": "3:cpu:/x\n0::/pod/one\n",
                f"{GROUPS}/pod/one/memory.max": "max\n",
                f"{GROUPS}/pod/memory.max": "4096\n",
                f"{GROUPS}/memory.max": "8192\n",
            },
            4096,
        ),
        ({f"{GROUPS}/memory/memory.limit_in_bytes": "2097152\n"}, 1 << 21),
        ({f"{GROUPS}/memory/memory.limit_in_bytes": "9223372036854771712\n"}, None),
    ],
)
def test_the_memory_limit_is_the_lowest_of_the_control_groups(tmp_path, contents, limit):
    for name, text in contents.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert heap.memory_limit(tmp_path) == limit


def faults(**env: str) -> tuple[int, int]:
    """Return the page faults of 100 MiB in pieces of 1 MiB, before and after."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**given, **env}, capture_output=True, check=True
    )
    before, after = map(int, done.stdout.split())
    return before, after


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_reused():
    before, after = faults()
    assert before > 20_000  # 256 pages each
    assert after < 2_000


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_settings_of_the_user_are_kept():
    _, after = faults(MALLOC_TOP_PAD_="4096")
    assert after > 20_000


@pytest.mark.parametrize(
    ("limit", "cpus", "expected"),
    [(None, 64, None), (512 * MIB, 64, 2), (4096 * MIB, 64, 16), (65536 * MIB, 2, 16), (MIB, 1, 2)],
)
def test_heaps_keep_at_most_a_quarter_of_the_memory(limit, cpus, expected):
    assert heap.arenas_within(limit, cpus) == expected
