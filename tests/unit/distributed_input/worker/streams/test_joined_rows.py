"""Rows that Python returns one by one, joined."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.graph.native_ops import EncodedRows
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.encode import make_encoder
from distributed_input.rows.runs import slice_run
from distributed_input.worker.crash_notes import Computed, Note
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams.joined_rows import SECONDS, JoinedRows
from distributed_input.worker.streams.split_blocks import split_blocks

ROW = ElementSpec(
    {"id": 0, "text": 1, "values": 2},
    (
        Leaf("id", "dense", "int64", ()),
        Leaf("text", "dense", "string", ()),
        Leaf("values", "dense", "float32", (None, 2)),
    ),
)
ENCODE = make_encoder(ROW, batched=False)


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


class Notes(Note):
    """Keeps the rows that are noted."""

    def __init__(self) -> None:
        super().__init__(Computed("", 0, 0))
        self.rows: list[tuple[int, int]] = []

    def begin(self, row: int, rows: int = 0) -> None:
        self.rows.append((row, rows))


def element(index: int) -> dict[str, Any]:
    values = np.full((index % 3, 2), index, np.float32)
    return {"id": np.int64(index), "text": "ab" * index, "values": values}


def joined(elements: Iterator[Any], clock: Clock, note: Note | None = None) -> JoinedRows:
    return JoinedRows(elements, lambda one: EncodedRows(*ENCODE(one)), note or Notes(), clock)


def buffers_of(index: int) -> list[bytes]:
    return [buffer.tobytes() for buffer in ENCODE(element(index))[1]]


def test_joined_rows_have_the_bytes_of_each_row() -> None:
    reader = joined(map(element, range(7)), Clock())
    run = reader.next(0)
    assert run is not None
    assert run.rows == 7
    for index in range(7):
        row = slice_run(ROW.columns, run.buffers, index, index + 1)
        assert [buffer.tobytes() for buffer in row] == buffers_of(index)
    assert reader.next(7) is None


def test_rows_are_joined_for_a_time() -> None:
    clock = Clock()

    def elements() -> Iterator[Any]:
        for index in range(5):
            clock.now += SECONDS * 0.4 if index < 3 else SECONDS
            yield element(index)

    reader = joined(elements(), clock)
    found = [reader.next(row) for row in (0, 3, 4)]
    assert [run.rows for run in found if run is not None] == [3, 1, 1]


def test_rows_are_joined_up_to_a_size() -> None:
    large = {**element(2), "text": "x" * 100_000}
    reader = joined(iter([large] * 4), Clock())
    found = [reader.next(0), reader.next(3)]
    assert [run.rows for run in found if run is not None] == [3, 1]


def test_rows_before_an_error_come_first_and_the_error_again_and_again() -> None:
    def elements() -> Iterator[Any]:
        yield element(0)
        yield element(1)
        raise KeyError("row 2")

    reader = joined(elements(), Clock())
    run = reader.next(0)
    assert run is not None
    assert run.rows == 2
    for _ in range(2):
        with pytest.raises(KeyError, match="row 2"):
            reader.next(2)


def test_elements_may_share_memory() -> None:
    shared = element(1)
    shared["values"] = np.zeros((1, 2), np.float32)

    def elements() -> Iterator[Any]:
        for index in range(3):
            shared["values"][:] = index
            yield shared

    run = joined(elements(), Clock()).next(0)
    assert run is not None
    assert run.buffers[-1].view(np.float32).tolist() == [0, 0, 1, 1, 2, 2]


def test_each_row_is_noted_before_it_is_computed() -> None:
    notes = Notes()
    seen: list[tuple[int, int]] = []

    def elements() -> Iterator[Any]:
        for index in range(3):
            seen.append(notes.rows[-1])
            yield element(index)

    joined(elements(), Clock(), notes).next(10)
    assert seen == [(10, 1), (11, 1), (12, 1)]


@pytest.mark.parametrize(("is_indexed", "sizes"), [(True, [6]), (False, [1] * 6)])
def test_only_rows_that_are_read_by_index_are_joined(is_indexed: bool, sizes: list[int]) -> None:
    split = SplitIterator(
        map(element, range(6)), ROW, batched=False, from_python=True, is_indexed=is_indexed
    )
    request = worker_pb2.StreamRequest(job=types_pb2.Job(name="train", row_spec=ROW.to_json()))
    blocks = list(split_blocks(request, split, StreamCounters()))
    assert [block.rows for block in blocks if block.rows] == sizes
    assert digests(blocks) == digests_one_by_one(6)


def digests(blocks: list[RowBlock]) -> list[int]:
    return [int(digest) for block in blocks for digest in block.digests]


def digests_one_by_one(rows: int) -> list[int]:
    request = worker_pb2.StreamRequest(job=types_pb2.Job(name="train", row_spec=ROW.to_json()))
    split = SplitIterator(map(element, range(rows)), ROW, batched=False)
    return digests(list(split_blocks(request, split, StreamCounters())))
