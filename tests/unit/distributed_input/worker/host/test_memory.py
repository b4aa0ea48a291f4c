"""The memory for buffers is half of the lowest limit."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from distributed_input.worker.host.memory import buffer_bytes

GIB = 1 << 30
V2 = "sys/fs/cgroup/memory.max"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({}, 2 * GIB),
        ({V2: f"{GIB}\n"}, GIB // 2),
        ({V2: f"{8 * GIB}\n"}, 2 * GIB),
    ],
)
def test_half_of_the_limit_is_for_buffers(
    files: dict[str, str], expected: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": GIB >> 10}.get)
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert buffer_bytes(tmp_path, {}) == expected
    shared = {"DISTRIBUTED_INPUT_MACHINE_WORKERS": "4"}
    assert buffer_bytes(tmp_path, shared) == expected // 4
