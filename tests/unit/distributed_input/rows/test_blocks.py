"""Blocks survive the wire, as protobuf messages."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock, check_sizes
from distributed_input.rows.elements import Column
from distributed_input.rows.prefix import Prefix

BUFFERS = st.lists(st.binary(max_size=300), max_size=4)


def block_of(data: list[bytes], rows: int, **fields: object) -> RowBlock:
    buffers = tuple(np.frombuffer(part, np.uint8) for part in data)
    digests = np.arange(rows, dtype=np.uint64) * np.uint64(2**62 + 1)
    return RowBlock(7, rows, buffers, digests, **fields)  # type: ignore[arg-type]


def assert_same(a: RowBlock, b: RowBlock) -> None:
    assert (a.first_row, a.rows, a.last, a.node) == (b.first_row, b.rows, b.last, b.node)
    assert (a.prefix_differs, a.prefix_digest) == (b.prefix_differs, b.prefix_digest)
    assert [x.tobytes() for x in a.buffers] == [x.tobytes() for x in b.buffers]
    assert a.digests.tolist() == b.digests.tolist()


@given(BUFFERS, st.integers(0, 5))
def test_the_encoding_is_a_protobuf_message(data: list[bytes], rows: int) -> None:
    block = block_of(data, rows)
    message = worker_pb2.Block.FromString(blocks.encode(block))
    assert message.payload == b"".join(data)


def test_decoding_copies_no_rows() -> None:
    data = blocks.encode(block_of([b"x" * 1000, b"y" * 24], 3))
    decoded = blocks.decode(data)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for buffer in decoded.buffers:
        assert start <= buffer.__array_interface__["data"][0] < start + len(data)


def test_a_block_with_inconsistent_sizes_is_refused() -> None:
    header = worker_pb2.Block(rows=2, buffer_sizes=[5], row_digests=b"0" * 16)
    with pytest.raises(ValueError, match="inconsistent"):
        blocks.decode(b"\x7a\x041234" + header.SerializeToString())


@pytest.mark.parametrize(
    "data",
    [b"", memoryview(b""), b"\x7a\x05", b"\xff" * 9, b"\x7a\xff", b"\x7a\x02a", b"\x7a\x00\xff"],
)
def test_bytes_that_are_no_block_are_refused(data: bytes) -> None:
    with pytest.raises(ValueError, match=r"not a block of rows|inconsistent"):
        blocks.decode(data)


@given(
    st.lists(st.lists(st.binary(max_size=9), min_size=2, max_size=2), min_size=1, max_size=4),
    st.booleans(),
)
def test_consecutive_blocks_are_encoded_as_one(runs: list[list[bytes]], last: bool) -> None:
    first, *others = [block_of(run, rows) for rows, run in enumerate(runs, 1)]
    first = replace(
        first,
        node="cpu",
        prefix_differs=True,
        prefix_digest=99,
        last=last and not others,
    )
    if others:
        others[-1] = replace(others[-1], last=last)
    found = blocks.decode(b"".join(blocks.encoded_pieces([first, *others])))
    columns = [b"".join(parts) for parts in zip(*runs, strict=True)]
    assert [buffer.tobytes() for buffer in found.buffers] == columns
    digests = [int(digest) for block in (first, *others) for digest in block.digests]
    assert found.digests.tolist() == digests
    assert (found.first_row, found.rows, found.node) == (7, len(digests), "cpu")
    assert (found.prefix_differs, found.prefix_digest, found.last) == (True, 99, last)


@given(st.integers(0, 2**40))
def test_a_number_survives_its_encoding(number: int) -> None:
    data = b"x" + blocks.varint(number) + b"y"
    assert blocks.read_varint(data, 1) == (number, len(data) - 1)


def test_the_cost_of_a_block_has_its_rows_digests_and_overhead() -> None:
    assert block_of([b"x" * 100], 3).cost == 100 + 3 * 8 + 512
    assert block_of([b""], 0, resume_token=b"state").cost == 0


def test_a_number_with_more_bytes_than_protobuf_writes_is_refused() -> None:
    assert blocks.read_varint(blocks.varint(2**64 - 1), 0) == (2**64 - 1, 10)
    with pytest.raises(ValueError, match="more than 10 bytes"):
        blocks.read_varint(b"\x80" * 10 + b"\x01", 0)


@pytest.mark.parametrize(
    ("sizes", "message"),
    [
        ((8, 8, 3), ""),
        ((12, 8, 3), "a block of 2 rows has 12 bytes of column x, not 8"),
        ((8, 4, 3), "has 4 bytes of column text, not 8"),
        ((8, 8, 4), "the lengths of column text do not fit its bytes"),
        ((8, 8), "the lengths of column text do not fit its bytes"),
        ((8, 8, 3, 1), "a block has 4 buffers, not 3"),
        ((8,), "a block has 1 buffers, not 3"),
    ],
)
def test_a_block_has_the_sizes_of_its_rows(sizes: tuple[int, ...], message: str) -> None:
    """Two rows of 4 bytes and a text: a larger one would reach into the next slot."""
    buffers = [np.zeros(size, np.uint8) for size in sizes]
    if len(sizes) > 1:
        buffers[1][0] = 3  # bytes of the first text
    block = RowBlock(0, 2, tuple(buffers), np.zeros(2, np.uint64))
    columns = [Column("x", 4), Column("text", None)]
    if not message:
        check_sizes(block, columns)
        return
    with pytest.raises(ValueError, match=message):
        check_sizes(block, columns)


ONE = np.zeros(1, np.uint64)


def rows_at(first: int, nbytes: int = 8, **fields: object) -> RowBlock:
    """Return a block of one row, whose bytes and digest are its index."""
    buffers = (np.full(nbytes, first, np.uint8), np.full(3, first, np.uint8))
    return RowBlock(first, 1, buffers, ONE + np.uint64(first), **fields)  # type: ignore[arg-type]


NONE = RowBlock(0, 0, (), ONE[:0])
LARGE = 1 << 17


def test_joined_blocks_have_the_rows_of_all() -> None:
    some = [rows_at(row) for row in (4, 5, 6)]
    (one,) = blocks.joined([replace(some[0], prefix_differs=True, prefix_digest=9), *some[1:]])
    assert (one.first_row, one.rows, one.prefix_differs, one.prefix_digest) == (4, 3, True, 9)
    assert [buffer.tolist() for buffer in one.buffers] == [
        [4] * 8 + [5] * 8 + [6] * 8,
        [4] * 3 + [5] * 3 + [6] * 3,
    ]
    assert one.digests.tolist() == [4, 5, 6]
    assert one.end_prefix == Prefix(4, 9).extend(one.digests)


@pytest.mark.parametrize(
    "some",
    [
        [rows_at(0), replace(NONE, last=True)],
        [rows_at(0), replace(NONE, resume_token=b"state"), rows_at(1)],
        [replace(NONE, replayed=3), rows_at(3)],
        [rows_at(0, LARGE), rows_at(1, LARGE)],
        [rows_at(0), rows_at(1, LARGE), rows_at(2)],
        [],
    ],
)
def test_blocks_without_rows_and_large_ones_are_not_joined(some: list[RowBlock]) -> None:
    assert [id(block) for block in blocks.joined(some)] == [id(block) for block in some]
