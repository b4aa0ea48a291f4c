"""A split's rows as blocks, after a replay of the rows before the start."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError, SpecError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.prefix import Prefix
from distributed_input.worker import crash_notes
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams import split_blocks as module
from distributed_input.worker.streams.split_blocks import split_blocks
from tests.unit.distributed_input.worker.streams.blockcases import (
    ROW,
    rows_in,
)


def split_of(rows: int, per_element: int = 0, first: int = 0) -> SplitIterator:
    """Return rows that contain their index plus `first`, as single rows or in batches."""

    def elements() -> Iterator[Any]:
        if not per_element:
            yield from ({"id": np.int64(row + first)} for row in range(rows))
            return
        for at in range(0, rows, per_element):
            yield {"id": np.arange(at, min(rows, at + per_element), dtype=np.int64) + first}

    return SplitIterator(elements(), ROW, batched=bool(per_element))


def read(
    split: SplitIterator, start: int = 0, known: Prefix | None = None
) -> tuple[list[RowBlock], StreamCounters]:
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=start)
    if known is not None:
        request.prefix_rows, request.prefix_digest = known.rows, known.digest
        request.check_prefix = True
    counters = StreamCounters()
    return list(split_blocks(request, split, counters)), counters


def prefix_in(found: list[RowBlock]) -> Prefix:
    prefix = Prefix()
    for block in found:
        prefix = prefix.extend(block.digests)
    return prefix


@given(st.integers(0, 20), st.integers(0, 25), st.integers(0, 6), st.integers(0, 25))
def test_a_stream_has_the_rows_from_its_start_and_checks_the_rows_before(
    rows: int, start: int, per_element: int, known_rows: int
) -> None:
    whole, _ = read(split_of(rows))
    before = prefix_in(read(split_of(min(known_rows, rows)))[0])
    known = Prefix(min(known_rows, start), before.digest)
    found, counters = read(split_of(rows, per_element), start, known)
    assert rows_in(found) == list(range(start, rows))
    assert [block.last for block in found] == [False] * (len(found) - 1) + [True]
    assert found[-1].first_row == rows
    assert found[0].prefix_digest == prefix_in(read(split_of(min(start, rows)))[0]).digest
    if known_rows <= start:
        assert found[0].prefix_differs == (known_rows > rows)
    assert prefix_in(whole).rows == rows
    assert (counters.rows, counters.bytes) == (max(0, rows - start), 8 * max(0, rows - start))
    assert counters.replayed_rows == min(start, rows)
    for block in found:
        decoded = blocks.decode(blocks.encode(block))
        assert rows_in([decoded]) == rows_in([block])
        assert decoded.digests.tolist() == block.digests.tolist()
        assert (decoded.first_row, decoded.last) == (block.first_row, block.last)


def test_other_rows_before_the_start_are_reported_once() -> None:
    known = prefix_in(read(split_of(4))[0])
    found, _ = read(split_of(9, first=1), 6, known)
    assert [block.prefix_differs for block in found] == [True] + [False] * (len(found) - 1)
    same, _ = read(split_of(9), 6, known)
    assert not any(block.prefix_differs for block in same)


@pytest.mark.parametrize(("requested", "largest"), [(0, 4), (5 * 8, 5), (1 << 20, 40)])
def test_a_block_has_the_requested_size(
    requested: int, largest: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 4 * 8)
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, block_bytes=requested)
    found = list(split_blocks(request, split_of(40, 40), StreamCounters()))
    assert max(block.rows for block in found) == largest
    assert rows_in(found) == list(range(40))


def test_a_long_replay_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_SECONDS", 0.0)
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=4)
    counters = StreamCounters()
    found = split_blocks(request, split_of(6), counters)
    for replayed in range(1, 5):
        progress = next(found)
        assert (progress.replayed, progress.last) == (replayed, False)
        assert (progress.first_row, progress.rows) == (0, 0)
        assert blocks.decode(blocks.encode(progress)).replayed == replayed
        assert counters.replayed_rows == replayed
    rest = list(found)
    assert rows_in(rest) == [4, 5]
    assert [block.last for block in rest] == [False] * (len(rest) - 1) + [True]
    assert rest[0].first_row == 4


def test_progress_is_reported_once_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 0.0

    def elements() -> Iterator[Any]:
        nonlocal now
        for row in range(8):
            now += 0.6
            yield {"id": np.int64(row)}

    monkeypatch.setattr(
        module, "time", SimpleNamespace(monotonic=lambda: now, perf_counter=lambda: now)
    )
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=7)
    split = SplitIterator(elements(), ROW, batched=False)
    found = split_blocks(request, split, StreamCounters())
    assert [block.replayed for block in found if block.replayed] == [2, 4, 6]


BYTE_ROW = ElementSpec(0, (Leaf("", "dense", "uint8", ()),))
REQUEST = worker_pb2.StreamRequest()


def bytes_of(values: Iterator[np.ndarray]) -> SplitIterator:
    return SplitIterator(values, BYTE_ROW, True)


def test_digests_do_not_depend_on_the_size_of_elements() -> None:
    def digests(sizes: list[int]) -> list[int]:
        data = np.arange(6, dtype=np.uint8)
        parts = iter(np.split(data, np.cumsum(sizes)[:-1]))
        *found, _ = split_blocks(REQUEST, bytes_of(parts), StreamCounters())
        assert [rows.first_row for rows in found] == [sum(sizes[:i]) for i in range(len(sizes))]
        return [int(digest) for rows in found for digest in rows.digests]

    assert digests([6]) == digests([1, 2, 3])


def test_an_empty_element_is_skipped() -> None:
    parts = iter([np.zeros(0, np.uint8), np.zeros(2, np.uint8)])
    rows, _ = split_blocks(REQUEST, bytes_of(parts), StreamCounters())
    assert (rows.first_row, rows.rows) == (0, 2)


def test_an_error_of_the_dataset_is_reported_as_such() -> None:
    def broken() -> Iterator[np.ndarray]:
        yield np.zeros(1, np.uint8)
        raise OSError("the disk is gone")

    counters = StreamCounters()
    found = split_blocks(REQUEST, bytes_of(broken()), counters)
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

    list(split_blocks(REQUEST, bytes_of(elements()), StreamCounters()))
    assert noted == [(0, 0), (3, 6)], "TensorFlow computes one element ahead"


def test_a_split_that_ends_leaves_its_record_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(crash_notes, "_memory", [bytearray(crash_notes._RECORD.size)])
    monkeypatch.setattr(crash_notes, "_free", free := [0])
    found = split_blocks(REQUEST, bytes_of(iter([np.zeros(1, np.uint8)] * 2)), StreamCounters())
    next(found)
    assert not free
    found.close()
    assert free == [0]


def test_a_value_of_another_type_is_reported_with_its_row_and_what_to_do() -> None:
    row = ElementSpec({"value": 0}, (Leaf("value", "dense", "int64", ()),))
    elements = iter([{"value": 10}, {"value": 9.99}])
    split = SplitIterator(elements, row, False, from_python=True)
    found = split_blocks(worker_pb2.StreamRequest(split=3), split, StreamCounters())
    next(found)
    message = r"row 1 of split 3: component 'value' is float \(9.99\), expected int64. .*_spec"
    with pytest.raises(SpecError, match=message):
        next(found)


@given(
    st.integers(1, 200), st.sampled_from([1, 3, 16, 17, 60]), st.integers(0, 200), st.integers(0, 9)
)
def test_large_elements_are_cut_once_into_parts_of_one_block(
    rows: int, row_bytes: int, start: int, unchecked: int
) -> None:
    """A part is a view, and the rows before the start are not a part of it."""
    spec = ElementSpec(0, (Leaf("", "dense", "uint8", (row_bytes,)),))
    data = np.arange(rows * row_bytes).astype(np.uint8).reshape(rows, row_bytes)
    split = SplitIterator(iter([data]), spec, True)
    request = worker_pb2.StreamRequest(start_row=start, prefix_rows=max(0, start - unchecked))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "BLOCK_BYTES", 16)
        *parts, _ = split_blocks(request, split, StreamCounters())
    assert b"".join(bytes(part.buffers[0]) for part in parts) == data[start:].tobytes()
    row = start
    for part in parts:
        assert part.first_row == row
        row += part.rows
        assert part.nbytes < 2 * 16 or part.rows == 1
        assert np.shares_memory(part.buffers[0], data)
    for part, following in itertools.pairwise(parts):
        assert part.end_prefix == Prefix(following.first_row, following.prefix_digest)


def test_an_element_of_less_than_two_blocks_is_not_cut(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 16)
    for rows, parts in ((1, 1), (31, 1), (32, 2)):
        split = bytes_of(iter([np.zeros(rows, np.uint8)]))
        assert len(list(split_blocks(REQUEST, split, StreamCounters()))) == parts + 1
