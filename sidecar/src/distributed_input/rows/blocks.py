"""Blocks of rows and their encoding on the wire.

A `Block` message is ordinary protobuf, but its payload comes first and is written by hand. The
sender copies each row once, into the message. The receiver reads rows in place without a copy.
The bytes fields of the protobuf library would copy every row on both sides.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
from google.protobuf.message import DecodeError
from numpy.typing import NDArray

from distributed_input.api.proto import worker_pb2
from distributed_input.rows.elements import Column
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.runs import Buffer, Bytes, Offsets, slice_run

BLOCK_BYTES = 1 << 20
"""Size of a block, unless the sidecar requests larger ones."""
_SMALL_BYTES = 1 << 16  # a copy of this size takes as long as a block
BLOCK_COST = 512
"""Cost of a block in addition to its rows; see StreamCredit in worker.proto."""
_PAYLOAD_TAG = (worker_pb2.Block.PAYLOAD_FIELD_NUMBER << 3) | 2  # length-delimited
_VARINT_BYTES = 10  # of 64 bits. The time for a longer one grows with the square of its length.


@dataclass(frozen=True)
class RowBlock:
    """Consecutive rows of one split.

    Attributes:
        first_row: index of the first row in the split.
        rows: number of rows.
        buffers: 1-D uint8 views, in the order of the row spec's columns. A fixed-width column has
            one buffer; a variable-width column has two, lengths and data.
        digests: uint64[rows], the digest of each row.
        last: whether the split ends after these rows.
        prefix_differs: whether the rows before `first_row` differ from those produced before. Set
            on the first block of a stream.
        node: kind of node that produced the rows. Set on the first block of a stream.
        prefix_digest: digest of all rows before `first_row`. In a worker, all blocks with rows have
            it. In a sidecar, only the first block of a stream is certain to have it.
        replayed: number of rows before the first block that were produced so far. A block with
            this field is a progress report and has no rows.
        resume_token: saved state of the split; see `worker.states`. A block with this field has no
            rows.
        split: id of the split, in a sidecar; -1: not set.
    """

    first_row: int
    rows: int
    buffers: tuple[Bytes, ...]
    digests: NDArray[np.uint64]
    last: bool = False
    prefix_differs: bool = False
    node: str = ""
    prefix_digest: int = 0
    replayed: int = 0
    resume_token: bytes = field(default=b"", repr=False)
    split: int = -1

    @property
    def end_row(self) -> int:
        """Index in the split of the row after the last one."""
        return self.first_row + self.rows

    @property
    def nbytes(self) -> int:
        """Size of the rows in bytes."""
        return sum(buffer.nbytes for buffer in self.buffers)

    @cached_property
    def end_prefix(self) -> Prefix:
        """The rows of the split up to the end of this block. Its digests are summed once."""
        return self.prefix_at(self.end_row)

    def prefix_at(self, row: int) -> Prefix:
        """Return the rows of the split before a row of this block; needs `prefix_digest`."""
        before = Prefix(self.first_row, self.prefix_digest)
        return before.extend(self.digests[: row - self.first_row])

    def part(
        self,
        columns: Sequence[Column],
        before: Prefix,
        rows: int,
        offsets: Sequence[Offsets] | None = None,
    ) -> RowBlock:
        """Return some of the rows as views.

        Args:
            columns: columns of the row spec.
            before: the rows of the split before the part.
            rows: number of rows of the part.
            offsets: see `slice_run`.
        """
        start = before.rows - self.first_row
        return RowBlock(
            before.rows,
            rows,
            tuple(slice_run(columns, self.buffers, start, start + rows, offsets)),
            self.digests[start : start + rows],
            prefix_digest=before.digest,
        )

    @property
    def cost(self) -> int:
        """Memory that the block takes in a queue, in bytes, as a stream's credit counts it."""
        return self.nbytes + 8 * self.rows + BLOCK_COST if self.rows else 0


def joined(blocks: Sequence[RowBlock]) -> tuple[RowBlock, ...]:
    """Return consecutive blocks of a split, those of few bytes joined to larger ones.

    Each block costs its receivers more than many small rows do. The rows are copied.
    """
    found: list[list[RowBlock]] = []
    for block in blocks:
        is_plain = block.rows and not block.prefix_differs and block.nbytes <= _SMALL_BYTES
        if found and is_plain and found[-1][0].rows and found[-1][-1].nbytes <= _SMALL_BYTES:
            found[-1].append(block)
        else:
            found.append([block])
    return tuple(_one(some) if len(some) > 1 else some[0] for some in found)


def _one(blocks: Sequence[RowBlock]) -> RowBlock:
    columns = zip(*(block.buffers for block in blocks), strict=True)
    return replace(
        blocks[0],
        rows=sum(block.rows for block in blocks),
        buffers=tuple(map(np.concatenate, columns)),
        digests=np.concatenate([block.digests for block in blocks]),
    )


def encode(block: RowBlock) -> bytes:
    """Return the serialized block. Copies the rows once."""
    return b"".join(encoded_pieces([block]))


def encoded_pieces(blocks: Sequence[RowBlock]) -> list[Buffer]:
    """Return consecutive blocks of a split as the pieces of one serialized block, without a copy.

    Args:
        blocks: the blocks. Other fields than those of the rows are the first one's.
    """
    first = blocks[0]
    digests = [block.digests for block in blocks]
    columns = list(zip(*(block.buffers for block in blocks), strict=True))
    sizes = [sum(piece.nbytes for piece in pieces) for pieces in columns]
    header = worker_pb2.Block(
        first_row=first.first_row,
        rows=sum(map(len, digests)),
        buffer_sizes=sizes,
        row_digests=(digests[0] if len(digests) == 1 else np.concatenate(digests)).tobytes(),
        last=blocks[-1].last,
        prefix_differs=first.prefix_differs,
        node=first.node,
        prefix_digest=first.prefix_digest,
        replayed=first.replayed,
        resume_token=first.resume_token,
    ).SerializeToString()
    rows = [memoryview(piece) for pieces in columns for piece in pieces]
    return [bytes((_PAYLOAD_TAG,)), varint(sum(sizes)), *rows, header]


def decode(data: bytes | memoryview) -> RowBlock:
    """Return the block in `data`. Its buffers are views of `data`.

    Raises:
        ValueError: `data` is not a block, or its sizes are inconsistent.
    """
    if data[:1] != bytes((_PAYLOAD_TAG,)):
        raise ValueError("not a block of rows: the stream is damaged")
    try:
        size, at = read_varint(data, 1)
        rest: Any = memoryview(data)[at + size :]  # protobuf reads it without a copy
        header = worker_pb2.Block.FromString(rest)
    except (DecodeError, IndexError) as error:
        raise ValueError(f"not a block of rows: {error}") from error
    payload: Bytes = np.frombuffer(data, np.uint8)[at : at + size]
    ends = list(itertools.accumulate(header.buffer_sizes, initial=0))
    digests = np.frombuffer(header.row_digests, np.uint64)
    if not ends[-1] == payload.nbytes == size or len(digests) != header.rows:
        raise ValueError("the sizes in a block are inconsistent: the stream is damaged")
    return RowBlock(
        header.first_row,
        header.rows,
        tuple(payload[start:end] for start, end in itertools.pairwise(ends)),
        digests,
        header.last,
        header.prefix_differs,
        header.node,
        header.prefix_digest,
        header.replayed,
        header.resume_token,
    )


def check_sizes(block: RowBlock, columns: Sequence[Column]) -> None:
    """Raise ValueError unless the buffers of a block have the sizes of its rows.

    A receiver copies them to places that it computes from the columns.
    """
    buffers = iter(block.buffers)
    for column in columns:
        data = next(buffers, None)
        if data is None:
            break
        width = 4 if column.row_bytes is None else column.row_bytes
        if data.nbytes != block.rows * width:
            raise ValueError(
                f"a block of {block.rows} rows has {data.nbytes} bytes of column {column.name}, "
                f"not {block.rows * width}"
            )
        if column.row_bytes is None:
            values, expected = next(buffers, None), int(data.view(np.uint32).sum(dtype=np.uint64))
            if values is None or values.nbytes != expected:
                raise ValueError(f"the lengths of column {column.name} do not fit its bytes")
    count = sum(2 if column.row_bytes is None else 1 for column in columns)
    if block.rows and len(block.buffers) != count:
        raise ValueError(f"a block has {len(block.buffers)} buffers, not {count}")


def varint(value: int) -> bytes:
    """Return a number in the encoding of protobuf."""
    out = bytearray()
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_varint(data: Any, at: int) -> tuple[int, int]:
    """Return the number at an index of a message, and the index behind it.

    Raises:
        IndexError: the message ends before.
        ValueError: the number is longer than those of protobuf.
    """
    value = 0
    for shift in range(0, 7 * _VARINT_BYTES, 7):
        byte = data[at]
        value |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return value, at
    raise ValueError(f"a number has more than {_VARINT_BYTES} bytes")
