"""Blocks of rows on the wire, encoded and decoded with one copy and none.

`Block` is an ordinary protobuf message. Its payload is written first and by hand, so that
the sender joins the rows' buffers straight into the message and the receiver finds them
in place: protobuf's own bytes fields would cost a copy of every row on either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from distributed_input.api.proto import worker_pb2
from distributed_input.rows.runs import Bytes

_PAYLOAD_TAG = (worker_pb2.Block.PAYLOAD_FIELD_NUMBER << 3) | 2  # length-delimited


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of one split.

    Attributes:
        first_row: index in the split of the first row.
        rows: how many.
        buffers: 1-D uint8 views, in the order of the row spec's columns: one for a
            fixed-width column, lengths and data for a variable one.
        digests: uint64, one a row; their sum modulo 2**64 digests a run of rows.
        last: the split ends behind these rows.
        prefix_differs: the rows before `first_row` were not those made before.
        node: kind of node that made the rows; on the first block of a stream.
        busy_seconds: time that making them took.
        prefix_digest: of all rows before `first_row`; on the first block of a stream.
        replayed: rows before the first block made so far. Then this is none, but says only that.
    """

    first_row: int
    rows: int
    buffers: tuple[Bytes, ...]
    digests: NDArray[np.uint64]
    last: bool = False
    prefix_differs: bool = False
    node: str = ""
    busy_seconds: float = 0.0
    prefix_digest: int = 0
    replayed: int = 0

    @property
    def nbytes(self) -> int:
        """Bytes of rows."""
        return sum(buffer.nbytes for buffer in self.buffers)


def encode(block: RowBlock, runs: Sequence[Sequence[Bytes]] | None = None) -> bytes:
    """The serialized `Block`, payload first: the rows are copied once.

    Args:
        block: what to send.
        runs: its rows where they lie in several runs, one behind the other, instead of
            `block.buffers`; they are joined here and nowhere before.
    """
    columns = list(zip(*(runs if runs is not None else [block.buffers]), strict=True))
    sizes = [sum(piece.nbytes for piece in pieces) for pieces in columns]
    header = worker_pb2.Block(
        first_row=block.first_row,
        rows=block.rows,
        buffer_sizes=sizes,
        row_digests=block.digests.tobytes(),
        last=block.last,
        prefix_differs=block.prefix_differs,
        node=block.node,
        busy_seconds=block.busy_seconds,
        prefix_digest=block.prefix_digest,
        replayed=block.replayed,
    ).SerializeToString()
    rows = [memoryview(piece) for pieces in columns for piece in pieces]
    return b"".join([bytes((_PAYLOAD_TAG,)), _varint(sum(sizes)), *rows, header])


def decode(data: bytes) -> RowBlock:
    """The block in `data`, whose buffers are views of it.

    Raises:
        ValueError: not a block, or sizes that do not add up.
    """
    try:
        return _decode(data)
    except (DecodeError, IndexError) as error:
        raise ValueError(f"not a block of rows: {error}") from error


def _decode(data: bytes) -> RowBlock:
    payload: Bytes = np.frombuffer(data, np.uint8)
    if data[:1] == bytes((_PAYLOAD_TAG,)):
        size, start = _read_varint(data, 1)
        rest: Any = memoryview(data)[start + size :]  # typed for bytes only; a copy otherwise
        header = worker_pb2.Block.FromString(rest)
        payload = payload[start : start + size]
    else:  # another writer's field order
        header = worker_pb2.Block.FromString(data)
        payload = np.frombuffer(header.payload, np.uint8)
    buffers, offset = [], 0
    for size in header.buffer_sizes:
        buffers.append(payload[offset : offset + size])
        offset += size
    digests = np.frombuffer(header.row_digests, np.uint64)
    if offset != payload.nbytes or len(digests) != header.rows:
        raise ValueError("a block's sizes do not add up: the stream is damaged")
    return RowBlock(
        header.first_row,
        header.rows,
        tuple(buffers),
        digests,
        header.last,
        header.prefix_differs,
        header.node,
        header.busy_seconds,
        header.prefix_digest,
        header.replayed,
    )


def digest_of(digests: NDArray[np.uint64]) -> int:
    """The digest of a run of rows: the sum of theirs, modulo 2**64."""
    return int(digests.sum(dtype=np.uint64))


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
        shift += 7
