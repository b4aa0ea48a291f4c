from __future__ import annotations

import errno
import mmap
import os
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.sidecar.delivery.slot_pool import ALIGN, SlotPool

SIZE = 64 * ALIGN
NEVER = threading.Event()


@pytest.fixture
def slots(tmp_path: Path) -> Iterator[SlotPool]:
    pool = SlotPool(tmp_path / "slots", SIZE)
    yield pool
    pool.close()


def after(seconds: float = 0.0) -> float:
    return time.monotonic() + seconds


@given(st.lists(st.one_of(st.integers(1, 20 * ALIGN), st.integers(-10, -1)), max_size=60))
def test_slots_never_overlap_and_all_memory_comes_back(
    tmp_path_factory: pytest.TempPathFactory, actions: list[int]
) -> None:
    slots = SlotPool(tmp_path_factory.mktemp("slots") / "slots", SIZE)
    held: dict[int, int] = {}
    for action in actions:
        if action > 0:
            slot = slots.allocate(action, after(), NEVER)
            if slot is None:
                continue
            assert slot % ALIGN == 0
            for other, size in held.items():
                assert slot + action <= other or other + size <= slot
            assert slot + action <= SIZE
            held[slot] = action
        elif held:
            slot = list(held)[action % len(held)]
            del held[slot]
            slots.release(slot)
    for slot in held:
        slots.release(slot)
    assert slots.used == 0
    assert slots.allocate(SIZE, after(), NEVER) == 0
    slots.close()


def test_an_allocation_waits_for_a_release_if_all_slots_are_used(slots: SlotPool) -> None:
    first = slots.allocate(SIZE, after(), NEVER)
    assert first == 0
    results: list[int | None] = []
    waiter = threading.Thread(
        target=lambda: results.append(slots.allocate(ALIGN, after(30), NEVER))
    )
    waiter.start()
    slots.release(first)
    waiter.join(10)
    assert results == [0]


def test_a_cancelled_allocation_returns_no_slot(slots: SlotPool) -> None:
    slots.allocate(SIZE, after(), NEVER)
    cancelled = threading.Event()
    results: list[int | None] = []
    waiter = threading.Thread(
        target=lambda: results.append(slots.allocate(1, after(30), cancelled))
    )
    waiter.start()
    cancelled.set()
    slots.wake()
    waiter.join(10)
    assert results == [None]


def test_the_error_of_a_too_large_batch_has_the_field_and_a_size_that_fits(slots: SlotPool) -> None:
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.buffer to at least 1Mi"):
        slots.allocate(SIZE + 1, after(), NEVER)


def test_another_mapping_has_the_same_memory_and_outlives_the_file(slots: SlotPool) -> None:
    other = np.memmap(slots.path, np.uint8, "r")
    slots.memory[5] = 42
    slots.close()
    assert other[5] == 42
    assert not slots.path.exists()


@pytest.fixture
def small_volume(tmp_path: Path) -> Iterator[Path]:
    """A tmpfs of 1 MiB, as small as /dev/shm of a container may be."""
    folder = tmp_path / "volume"
    folder.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(folder)]
    if os.geteuid() or subprocess.run(command, check=False, capture_output=True).returncode:
        pytest.skip("only root may mount a tmpfs")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)  # mappings may exist


def test_a_full_volume_is_an_error_that_names_the_folder_and_the_size(small_volume: Path) -> None:
    first = SlotPool(small_volume / "first", 768 << 10)
    with pytest.raises(UnavailableError, match=f"folder {small_volume} has no room") as raised:
        SlotPool(small_volume / "second", 512 << 10)
    assert "buffer of 1 MiB (spec.sidecar.buffer): 0 MiB are free" in str(raised.value)
    assert [path.name for path in small_volume.iterdir()] == ["first"]
    first.memory[:] = 42
    first.close()
    # The mapping keeps the memory, which is free once the pool is retired.
    with pytest.raises(UnavailableError):
        SlotPool(small_volume / "second", 512 << 10)
    first.retire()
    SlotPool(small_volume / "second", 512 << 10).close()


def test_all_memory_is_allocated_at_the_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(fd: int, offset: int, size: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "posix_fallocate", refuse)
    with pytest.raises(UnavailableError, match=r"Lower spec\.sidecar\.buffer"):
        SlotPool(tmp_path / "slots", SIZE)
    assert not list(tmp_path.iterdir())


def test_a_retired_pool_keeps_the_memory_of_slots_in_use_only(tmp_path: Path) -> None:
    page = mmap.PAGESIZE
    slots = SlotPool(tmp_path / "slots", 8 * page)
    slots.memory[:] = 42
    other = np.memmap(slots.path, np.uint8, "r")
    held = [slots.allocate(2 * page, after(), NEVER) for _ in range(3)]
    assert held == [0, 2 * page, 4 * page]
    slots.release(2 * page)
    slots.retire()
    assert not slots.path.exists()
    assert set(other[: 2 * page]) == set(other[4 * page : 6 * page]) == {42}
    assert set(other[2 * page : 4 * page]) == set(other[6 * page :]) == {0}
    slots.release(4 * page)
    assert set(other[: 2 * page]) == {42}
    assert set(other[2 * page :]) == {0}


def test_a_release_of_an_unknown_slot_is_ignored(slots: SlotPool) -> None:
    slot = slots.allocate(ALIGN, after(), NEVER)
    assert slot is not None
    slots.release(slot)
    slots.release(slot)
    slots.release(12345)
    assert slots.used == 0
