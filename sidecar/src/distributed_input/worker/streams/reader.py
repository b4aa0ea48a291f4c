"""A stream that reads a source which others may read too: where it is, and what it is sent."""

from __future__ import annotations

from dataclasses import dataclass

from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.runs import slice_run
from distributed_input.worker.node import NODE
from distributed_input.worker.streams.window import Made


@dataclass(eq=False)
class Reader:
    """A stream: where it is, and the digest of the rows before that once it has begun."""

    request: worker_pb2.StreamRequest
    row: int
    digest: int = 0
    begun: bool = False
    prefix: int | None = None  # digest of the rows that the request knows, where it joined
    leads: bool = False  # its source was opened for it, and checks that itself
    joined: bool = False  # of its present source it has no block yet
    replayed: int = 0  # rows that it was told are made again


@dataclass(frozen=True)
class Step:
    """A reader's next block: from which row on, and how it comes by it."""

    made: Made
    row: int
    own: bool  # was made now
    opening: bytes = b""  # what the first block of a stream that joined says besides


def rest_of(reader: Reader) -> worker_pb2.StreamRequest:
    """A request for what a reader has not got yet, which checks what it has."""
    request = worker_pb2.StreamRequest()
    request.CopyFrom(reader.request)
    request.start_row = request.prefix_rows = reader.row
    request.prefix_digest, request.check_prefix = reader.digest, reader.row > 0
    return request


def opening_of(reader: Reader) -> bytes:
    """The fields that `stream.split_blocks` has on a first block; later ones win where merged."""
    request = reader.request
    prefix = reader.digest if reader.prefix is None else reader.prefix
    return worker_pb2.Block(
        prefix_differs=request.check_prefix and prefix != request.prefix_digest,
        node=NODE,
        prefix_digest=reader.digest,
    ).SerializeToString()


def as_sent(step: Step, request: worker_pb2.StreamRequest) -> bytes:
    """The block's bytes from the reader's row on."""
    made, data = step.made, step.made.data
    if made.first_row < step.row < made.first_row + made.rows:
        block, skip = blocks.decode(data), step.row - made.first_row
        columns = ElementSpec.from_json(request.job.row_spec).columns
        rest = slice_run(columns, block.buffers, skip, made.rows)
        data = blocks.encode(
            RowBlock(step.row, made.rows - skip, tuple(rest), made.digests[skip:], node=block.node)
        )
    return data + step.opening if step.opening else data
