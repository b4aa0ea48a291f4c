"""Slots of the ring: never two owners, nothing lost, any order of release."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import ConfigError
from distributed_input.sidecar.delivery.slot_pool import ALIGN, Ring

SIZE = 64 * ALIGN
NEVER = threading.Event()


@pytest.fixture
def ring(tmp_path: Path) -> Iterator[Ring]:
    made = Ring(tmp_path / "ring", SIZE)
    yield made
    made.close()


def now(seconds: float = 0.0) -> float:
    return time.monotonic() + seconds


@given(st.lists(st.one_of(st.integers(1, 20 * ALIGN), st.integers(-10, -1)), max_size=60))
def test_slots_never_overlap_and_all_memory_comes_back(
    tmp_path_factory: pytest.TempPathFactory, actions: list[int]
) -> None:
    ring = Ring(tmp_path_factory.mktemp("ring") / "ring", SIZE)
    held: dict[int, int] = {}
    for action in actions:
        if action > 0:
            slot = ring.allocate(action, now(), NEVER)
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
            ring.release(slot)
    for slot in held:
        ring.release(slot)
    assert ring.used == 0
    assert ring.allocate(SIZE, now(), NEVER) == 0
    ring.close()


def test_a_full_ring_waits_for_a_release(ring: Ring) -> None:
    first = ring.allocate(SIZE, now(), NEVER)
    assert first == 0
    got: list[int | None] = []
    waiter = threading.Thread(target=lambda: got.append(ring.allocate(ALIGN, now(30), NEVER)))
    waiter.start()
    ring.release(first)
    waiter.join(10)
    assert got == [0]


def test_a_cancelled_wait_ends(ring: Ring) -> None:
    ring.allocate(SIZE, now(), NEVER)
    cancelled = threading.Event()
    got: list[int | None] = []
    waiter = threading.Thread(target=lambda: got.append(ring.allocate(1, now(30), cancelled)))
    waiter.start()
    cancelled.set()
    ring.wake()
    waiter.join(10)
    assert got == [None]


def test_a_batch_larger_than_the_ring_names_the_field_and_a_size_that_fits(ring: Ring) -> None:
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.buffer to at least 1Mi"):
        ring.allocate(SIZE + 1, now(), NEVER)


def test_another_mapping_sees_the_rows_and_outlives_the_file(ring: Ring) -> None:
    other = np.memmap(ring.path, np.uint8, "r")
    ring.memory[5] = 42
    ring.close()
    assert other[5] == 42
    assert not ring.path.exists()


def test_an_unknown_release_is_ignored(ring: Ring) -> None:
    slot = ring.allocate(ALIGN, now(), NEVER)
    assert slot is not None
    ring.release(slot)
    ring.release(slot)
    ring.release(12345)
    assert ring.used == 0
