"""A window covers the rows of its blocks, and knows all rows before them by their digest."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.worker.streams.block_window import BlockWindow
from tests.unit.distributed_input.worker.streams.blockcases import block_of, end_of, prefix_of


def window_of(start: int, sizes: list[int]) -> BlockWindow:
    window = BlockWindow(start)
    for size in sizes:
        window.append(block_of(window.head, size))
    return window


@given(
    st.integers(0, 5),
    st.lists(st.integers(1, 4), min_size=1, max_size=6),
    st.integers(0, 1000),
    st.integers(0, 40),
)
def test_the_prefix_of_a_covered_row_does_not_depend_on_blocks_and_evictions(
    start: int, sizes: list[int], limit: int, row: int
) -> None:
    window = window_of(start, sizes)
    window.trim(limit)
    block = next(iter(window.blocks_from(row, 0)), None)
    if window.covers(row):
        assert window.prefix(row) == prefix_of(row)
    else:
        assert window.prefix(row) is None
        assert block is None
    if block is not None:
        assert block.first_row <= row < block.end_row
    assert (block is None) == (not window.first <= row < window.head)


@given(
    st.integers(0, 5),
    st.lists(st.integers(1, 4), max_size=6),
    st.integers(0, 4000),
    st.integers(0, 40),
    st.integers(0, 4000),
)
def test_blocks_from_a_row_are_consecutive_and_as_many_as_the_limit_allows(
    start: int, sizes: list[int], kept: int, row: int, limit: int
) -> None:
    window = window_of(start, sizes)
    window.trim(kept)
    found = window.blocks_from(row, limit)
    whole = window.blocks_from(row, 1 << 30)
    assert bool(found) == (window.first <= row < window.head)
    assert found == whole[: len(found)]
    if found:
        assert found[0].first_row <= row < found[0].end_row
        assert whole[-1].end_row == window.head
    for one, following in itertools.pairwise(whole):
        assert one.end_row == following.first_row
    cost = sum(block.cost for block in found)
    assert cost <= limit or len(found) == 1
    for following in whole[len(found) : len(found) + 1]:
        assert cost + following.cost > limit


@given(
    st.integers(0, 5),
    st.lists(st.integers(1, 4), max_size=6),
    st.integers(0, 4000),
    st.integers(0, 40),
)
def test_what_is_ahead_of_a_row_is_the_blocks_from_it_on(
    start: int, sizes: list[int], kept: int, row: int
) -> None:
    window = window_of(start, sizes)
    window.trim(kept)
    ahead = sum(block.cost for block in window.blocks_from(max(row, window.first), 1 << 30))
    assert window.ahead(row) == ahead
    assert window.ahead(window.first) == window.nbytes


def test_the_prefix_is_unknown_before_the_first_block() -> None:
    window = BlockWindow(3)
    assert window.covers(3)
    assert window.prefix(3) is None
    window.append(block_of(3, 2, prefix_digest=prefix_of(3).digest))
    assert window.prefix(4) == prefix_of(4)


def test_trimming_keeps_one_block_and_drop_before_may_drop_it() -> None:
    window = window_of(0, [2, 2, 2])
    window.trim(0)
    assert (window.first, window.head) == (4, 6)
    window.drop_before(5)
    assert window.first == 4
    window.drop_before(6)
    assert (window.first, window.nbytes) == (6, 0)


def test_a_window_of_its_limit_stays_and_read_blocks_are_dropped_one_by_one() -> None:
    window = window_of(0, [2, 2, 2])
    window.trim(window.nbytes)
    assert window.first == 0
    window.drop_before(4)
    assert (window.first, window.head) == (4, 6)


@pytest.mark.parametrize(("position", "full"), [(1, True), (2, False)])
def test_a_window_is_full_if_a_stream_needs_its_oldest_block(position: int, full: bool) -> None:
    window = window_of(0, [2, 2])
    assert window.is_full(window.nbytes, position) == full
    assert not window.is_full(window.nbytes + 1, position)


def test_the_end_of_a_split_is_not_a_block_of_the_window() -> None:
    window = window_of(0, [2])
    size = window.nbytes
    window.append(end_of(2))
    assert window.end is not None
    assert not window.blocks_from(2, 1 << 20)
    assert window.ahead(2) == 0
    assert (window.head, window.nbytes) == (2, size)
