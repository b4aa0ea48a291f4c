"""Blocks survive the wire, in our encoding and in protobuf's own."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock

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


@given(BUFFERS, st.integers(0, 5), st.booleans(), st.integers(0, 2**64 - 1))
def test_round_trip(data: list[bytes], rows: int, last: bool, digest: int) -> None:
    block = block_of(data, rows, last=last, node="cpu", prefix_digest=digest)
    assert_same(blocks.decode(blocks.encode(block)), block)


@given(BUFFERS, st.integers(0, 5))
def test_the_encoding_is_the_protos(data: list[bytes], rows: int) -> None:
    block = block_of(data, rows)
    message = worker_pb2.Block.FromString(blocks.encode(block))
    assert message.payload == b"".join(data)
    # A writer that knows nothing of our field order is understood as well.
    assert_same(blocks.decode(message.SerializeToString()), block)


def test_decoding_copies_no_rows() -> None:
    data = blocks.encode(block_of([b"x" * 1000, b"y" * 24], 3))
    decoded = blocks.decode(data)
    start = np.frombuffer(data, np.uint8).__array_interface__["data"][0]
    for buffer in decoded.buffers:
        assert start <= buffer.__array_interface__["data"][0] < start + len(data)


def test_a_damaged_block_is_refused() -> None:
    message = worker_pb2.Block(rows=2, buffer_sizes=[5], row_digests=b"0" * 16, payload=b"1234")
    with pytest.raises(ValueError, match="inconsistent"):
        blocks.decode(message.SerializeToString())


def test_the_digest_of_a_run_does_not_depend_on_the_cut() -> None:
    digests = np.random.default_rng(0).integers(0, 2**64 - 1, 20, dtype=np.uint64)
    whole = blocks.digest_of(digests)
    for cut in range(21):
        parts = blocks.digest_of(digests[:cut]) + blocks.digest_of(digests[cut:])
        assert parts % (1 << 64) == whole
