"""A split's rows as blocks, after a replay of the rows before the start."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.streams import split_blocks as module
from distributed_input.worker.streams.split_blocks import Replay, split_blocks
from tests.unit.distributed_input.worker.streams.blockcases import (
    ROW,
    digests_of,
    prefix_of,
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
    return list(split_blocks(request, split, "node", counters)), counters


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
    assert found[0].node == "node"
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
    found = list(split_blocks(request, split_of(40, 40), "node", StreamCounters()))
    assert max(block.rows for block in found) == largest
    assert rows_in(found) == list(range(40))


def test_a_long_replay_reports_its_progress(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PROGRESS_SECONDS", 0.0)
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=4)
    counters = StreamCounters()
    found = split_blocks(request, split_of(6), "node", counters)
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

    monkeypatch.setattr(module, "time", SimpleNamespace(monotonic=lambda: now))
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=7)
    split = SplitIterator(elements(), ROW, batched=False)
    found = split_blocks(request, split, "node", StreamCounters())
    assert [block.replayed for block in found if block.replayed] == [2, 4, 6]


@given(st.integers(0, 12), st.integers(0, 12), st.lists(st.integers(1, 5), max_size=6))
def test_a_replay_counts_the_rows_before_the_start_however_they_are_cut(
    start: int, checked: int, sizes: list[int]
) -> None:
    replay = Replay(start, min(checked, start))
    produced = 0
    for size in sizes:
        if replay.is_complete:
            break
        digests = digests_of(produced, size)
        assert replay.add(digests) == min(size, start - produced)
        produced += size
    assert replay.prefix == prefix_of(min(produced, start))
    if min(checked, start) <= produced:
        assert replay.checked == prefix_of(min(checked, start))
        assert not replay.differs(prefix_of(min(checked, start)))
    else:
        assert replay.checked is None
        assert replay.differs(prefix_of(min(checked, start)))
