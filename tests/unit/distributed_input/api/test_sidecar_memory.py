"""A sidecar's memory follows from the spec, and its streams keep to it."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import sidecar_memory
from distributed_input.api.sidecar_memory import PROCESS_BYTES

MIB = 1 << 20
PARTITIONS, READ_AHEAD = st.integers(1, 1024), st.integers(0, 8)
ROW_BYTES, AVAILABLE = st.integers(0, 64 * MIB), st.integers(0, 1 << 36)


@pytest.mark.parametrize(
    ("partitions", "consumers", "parallel", "own"),
    [(None, 1, False, 8), (None, 3, False, 3), (12, 4, False, 3), (12, 4, True, 12)],
)
def test_partitions_of_one_trainer(
    partitions: int | None, consumers: int, parallel: bool, own: int
) -> None:
    assert sidecar_memory.own_partitions(partitions, consumers, parallel=parallel) == own


@given(PARTITIONS, READ_AHEAD, ROW_BYTES, AVAILABLE)
def test_the_largest_read_ahead_that_fits_is_used(
    partitions: int, read_ahead: int, row_bytes: int, available: int
) -> None:
    found = sidecar_memory.fitting_read_ahead(partitions, read_ahead, row_bytes, available)
    assert 0 <= found <= read_ahead
    if found:
        assert sidecar_memory.needed_bytes(partitions, found, row_bytes) <= available
    if found < read_ahead:
        assert sidecar_memory.needed_bytes(partitions, found + 1, row_bytes) > available


@given(PARTITIONS, READ_AHEAD)
def test_the_default_has_room_for_small_rows(partitions: int, read_ahead: int) -> None:
    available = sidecar_memory.default_bytes(partitions, read_ahead)
    assert available >= 512 * MIB
    fitting = sidecar_memory.fitting_read_ahead(partitions, read_ahead, 0, available)
    assert fitting == read_ahead


@given(st.integers(0, 4096), PARTITIONS)
def test_the_useful_read_ahead_is_the_least_with_two_splits_for_each_place(
    capacity: int, partitions: int
) -> None:
    found = sidecar_memory.useful_read_ahead(capacity, partitions)
    assert found >= 1
    assert partitions * (1 + found) >= 2 * capacity
    assert found == 1 or partitions * found < 2 * capacity


@given(PARTITIONS)
def test_the_automatic_read_ahead_has_a_maximum(partitions: int) -> None:
    found = sidecar_memory.most_read_ahead(partitions)
    assert found == 1 or partitions * (1 + found) <= 512 < partitions * (2 + found)


@given(PARTITIONS, PARTITIONS, AVAILABLE)
def test_the_queues_take_a_third_of_the_memory_at_most(
    streams: int, more: int, available: int
) -> None:
    queue = sidecar_memory.queue_bytes(streams, streams + more, available)
    assert 0 <= queue <= 8 * MIB
    assert streams * queue <= max(0, available - PROCESS_BYTES) / 3
    assert queue <= 2 * MIB or streams * queue <= 64 * MIB
    assert sidecar_memory.queue_bytes(streams + 1, streams + more, available) <= queue


@pytest.mark.parametrize(
    ("streams", "queue", "block"), [(8, 8, 4), (16, 4, 2), (32, 2, 1), (512, 2, 1)]
)
def test_few_streams_have_large_queues_and_blocks(streams: int, queue: int, block: int) -> None:
    found = sidecar_memory.queue_bytes(streams, 512, 1 << 40)
    assert (found, sidecar_memory.block_bytes(found)) == (queue * MIB, block * MIB)


@given(PARTITIONS, AVAILABLE)
def test_the_splits_that_are_read_take_another_third_at_most(
    partitions: int, available: int
) -> None:
    head = sidecar_memory.head_bytes(partitions, available)
    room = max(0, available - PROCESS_BYTES)
    assert room / 3 - partitions < partitions * head <= room / 3


@given(st.integers(0, 1 << 30))
def test_a_block_has_at_least_one_mebibyte(queue: int) -> None:
    assert MIB <= sidecar_memory.block_bytes(queue) <= max(MIB, min(4 * MIB, queue // 2))


def test_two_rows_of_each_partition_are_the_least() -> None:
    least = PROCESS_BYTES + 4 * 2 * 16 * MIB
    assert sidecar_memory.holds_one_row(4, 16 * MIB, least)
    assert not sidecar_memory.holds_one_row(4, 16 * MIB, least - 1)
