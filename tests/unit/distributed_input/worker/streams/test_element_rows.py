"""Elements are encoded with the index of their rows, and grouped into blocks by size and time."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams import element_rows
from distributed_input.worker.streams.counters import StreamCounters
from distributed_input.worker.streams.element_rows import (
    ElementRows,
    encode_elements,
    group_rows,
)

BYTE_ROW = ElementSpec(0, (Leaf("", "dense", "uint8", ()),))


def elements_of(sizes: list[int], seconds: float = 0.0) -> list[ElementRows]:
    """Return elements with rows of one byte."""
    out: list[ElementRows] = []
    first = 0
    for size in sizes:
        data = np.arange(first, first + size).astype(np.uint8)
        out.append(
            ElementRows(first, [data], np.arange(first, first + size, dtype=np.uint64), seconds)
        )
        first += size
    return out


def split_of(values: Iterator[np.ndarray]) -> SplitIterator:
    return SplitIterator(values, BYTE_ROW, True)


def test_digests_do_not_depend_on_the_size_of_elements() -> None:
    def digests(sizes: list[int]) -> list[int]:
        data = np.arange(6, dtype=np.uint8)
        parts = iter(np.split(data, np.cumsum(sizes)[:-1]))
        found = list(encode_elements(split_of(parts), StreamCounters()))
        assert [rows.first_row for rows in found] == [sum(sizes[:i]) for i in range(len(sizes))]
        return [int(digest) for rows in found for digest in rows.digests]

    assert digests([6]) == digests([1, 2, 3])


def test_an_empty_element_is_skipped() -> None:
    parts = iter([np.zeros(0, np.uint8), np.zeros(2, np.uint8)])
    (rows,) = encode_elements(split_of(parts), StreamCounters())
    assert (rows.first_row, rows.rows) == (0, 2)


def test_an_error_of_the_dataset_is_reported_as_such() -> None:
    def broken() -> Iterator[np.ndarray]:
        yield np.zeros(1, np.uint8)
        raise OSError("the disk is gone")

    counters = StreamCounters()
    found = encode_elements(split_of(broken()), counters)
    next(found)
    assert counters.busy_seconds > 0
    with pytest.raises(DatasetFnError, match="the disk is gone"):
        next(found)


@given(st.lists(st.integers(1, 60), max_size=20), st.sampled_from([0.0, 1.0]))
def test_grouping_keeps_all_rows_in_order(sizes: list[int], seconds: float) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(element_rows, "BLOCK_BYTES", 16)
        groups = list(group_rows(elements_of(sizes, seconds), BYTE_ROW.columns))
    digests = [int(digest) for group in groups for rows in group for digest in rows.digests]
    assert digests == list(range(sum(sizes)))
    data = [bytes(rows.buffers[0]) for group in groups for rows in group]
    assert b"".join(data) == np.arange(sum(sizes)).astype(np.uint8).tobytes()
    for group in groups:
        at = group[0].first_row
        for rows in group:
            assert rows.first_row == at
            at += rows.rows
        assert sum(rows.nbytes for rows in group) < 2 * 16
    total = sum(rows.seconds for group in groups for rows in group)
    assert total == pytest.approx(seconds * len(sizes))


def test_quick_small_elements_share_a_block_and_slow_ones_do_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(element_rows, "_MAX_HOLD_SECONDS", 60.0)

    def grouped(seconds: float) -> list[int]:
        return [len(group) for group in group_rows(elements_of([1] * 5, seconds), BYTE_ROW.columns)]

    assert grouped(0.0) == [5]
    assert grouped(1.0) == [1] * 5


def test_a_group_is_sent_after_the_maximum_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(element_rows, "_MAX_HOLD_SECONDS", 0.0)
    groups = group_rows(elements_of([1] * 3), BYTE_ROW.columns)
    assert [len(group) for group in groups] == [1, 1, 1]
