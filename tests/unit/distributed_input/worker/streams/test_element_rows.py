"""Elements are encoded with the index of their rows, and large ones are cut."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError, SpecError
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker import crash_notes
from distributed_input.worker.crash_notes import Computed
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams.element_rows import (
    ElementRows,
    cut_rows,
    encode_elements,
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
    with pytest.raises(DatasetFnError, match=r"the disk is gone \(row 1 of split 0\)"):
        next(found)


def test_the_note_of_a_crash_has_the_rows_that_it_may_be(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(crash_notes, "_memory", memory := [bytearray(crash_notes._RECORD.size)])
    monkeypatch.setattr(crash_notes, "_free", [0])
    noted = []

    def elements() -> Iterator[np.ndarray]:
        for _ in range(2):
            note = crash_notes._Record._make(crash_notes._RECORD.unpack(memory[0]))
            noted.append((note.row, note.rows))
            yield np.zeros(3, np.uint8)

    list(encode_elements(split_of(elements()), StreamCounters()))
    assert noted == [(0, 0), (3, 6)], "TensorFlow computes one element ahead"


def test_a_split_that_ends_leaves_its_record_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_notes, "_memory", [bytearray(crash_notes._RECORD.size)])
    monkeypatch.setattr(crash_notes, "_free", free := [0])
    found = encode_elements(split_of(iter([np.zeros(1, np.uint8)] * 2)), StreamCounters())
    next(found)
    assert not free
    found.close()
    assert free == [0]


def test_a_value_of_another_type_is_reported_with_its_row_and_what_to_do() -> None:
    row = ElementSpec({"value": 0}, (Leaf("value", "dense", "int64", ()),))
    elements = iter([{"value": 10}, {"value": 9.99}])
    split = SplitIterator(elements, row, False, from_python=True)
    found = encode_elements(split, StreamCounters(), of=Computed("data:rows", 0, 3))
    next(found)
    message = r"row 1 of split 3: component 'value' is float \(9.99\), expected int64. .*_spec"
    with pytest.raises(SpecError, match=message):
        next(found)


@given(st.integers(1, 200), st.sampled_from([1, 3, 16, 17, 60]))
def test_large_elements_are_cut_into_parts_of_one_block(rows: int, row_bytes: int) -> None:
    spec = ElementSpec(0, (Leaf("", "dense", "uint8", (row_bytes,)),))
    data = np.arange(rows * row_bytes).astype(np.uint8)
    whole = ElementRows(7, [data], np.arange(rows, dtype=np.uint64), 1.0)
    parts = list(cut_rows(whole, spec.columns, 16))
    assert b"".join(bytes(part.buffers[0]) for part in parts) == data.tobytes()
    assert [int(digest) for part in parts for digest in part.digests] == list(range(rows))
    row = 7
    for part in parts:
        assert part.first_row == row
        row += part.rows
        assert part.nbytes < 2 * 16 or part.rows == 1
        assert np.shares_memory(part.buffers[0], data)
    assert sum(part.seconds for part in parts) == pytest.approx(1.0)
    assert all(part.nbytes > 8 or part is parts[-1] for part in parts[:-1])


def test_an_element_of_less_than_two_blocks_is_not_cut() -> None:
    for rows, parts in ((1, 1), (31, 1), (32, 2)):
        (whole,) = elements_of([rows])
        assert len(list(cut_rows(whole, BYTE_ROW.columns, 16))) == parts
