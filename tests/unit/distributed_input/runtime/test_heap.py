"""Reuse of freed memory, even if TensorFlow has configured malloc otherwise."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

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


def faults(**env: str) -> tuple[int, int]:
    """Return the page faults of 100 MiB in pieces of 1 MiB, before and after."""
    given = {k: v for k, v in os.environ.items() if not k.startswith(("MALLOC_", "GLIBC_"))}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], env={**given, **env}, capture_output=True, check=True
    )
    before, after = map(int, done.stdout.split())
    return before, after


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_freed_memory_is_reused() -> None:
    before, after = faults()
    assert before > 20_000  # 256 pages each
    assert after < 2_000


@pytest.mark.skipif(sys.platform != "linux", reason="glibc's malloc")
def test_settings_of_the_user_are_kept() -> None:
    _, after = faults(MALLOC_TOP_PAD_="4096")
    assert after > 20_000
