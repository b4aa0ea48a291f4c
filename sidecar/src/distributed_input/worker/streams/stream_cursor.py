"""The position of a stream in its split, and the blocks that it gets."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.link.blocks.sender import Outlet
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.prefix import Prefix
from distributed_input.rows.runs import slice_run
from distributed_input.worker.compute.task_queue import Need
from distributed_input.worker.node import NODE


@dataclass(eq=False)
class StreamCursor:
    """The position of a stream in its split.

    Attributes:
        request: the sidecar's request, or `remaining_request` after a change of producers.
        outlet: where the blocks go.
        counters: counters of the stream.
        prefix: rows before the stream's next row; None until its first block.
        checked: rows whose digest the request has, as the stream's producer produced them; None if
            they were not known when the stream joined the producer.
        leads: whether the producer was started for this stream. It then checks the request itself.
        joining: whether the stream has no block of its current producer yet.
        replayed: replay progress of the producer that was last sent to the stream.
        states: number of the producer's saved state that was last sent to the stream.
        ended: whether its end, or an error, was sent.
    """

    request: worker_pb2.StreamRequest
    outlet: Outlet
    counters: StreamCounters = field(default_factory=StreamCounters)
    prefix: Prefix | None = None
    checked: Prefix | None = None
    leads: bool = False
    joining: bool = False
    replayed: int = 0
    states: int = 0
    ended: bool = False

    @property
    def row(self) -> int:
        """Return the index of the next row that the stream needs."""
        return self.request.start_row if self.prefix is None else self.prefix.rows

    @property
    def known(self) -> Prefix:
        """Return the rows whose digest the request has."""
        return Prefix(self.request.prefix_rows, self.request.prefix_digest)

    @property
    def need(self) -> Need:
        """Return who reads the split, and when."""
        request = self.request
        return Need((request.job.name, request.seed), (request.epoch, request.ordinal))


def remaining_request(cursor: StreamCursor) -> worker_pb2.StreamRequest:
    """Return a request for the rows after the cursor that checks the rows before it."""
    if cursor.prefix is None:
        return cursor.request
    request = worker_pb2.StreamRequest()
    request.CopyFrom(cursor.request)
    request.start_row = request.prefix_rows = cursor.prefix.rows
    request.prefix_digest = cursor.prefix.digest
    request.check_prefix = cursor.prefix.rows > 0
    return request


def joining_block(block: RowBlock, cursor: StreamCursor) -> RowBlock:
    """Return a stream's first block, for a stream that joined a running producer.

    Call it before the block is added to the cursor's prefix.
    """
    assert cursor.prefix is not None
    checked = cursor.prefix if cursor.checked is None else cursor.checked
    return replace(
        block,
        prefix_differs=cursor.request.check_prefix and not checked.matches(cursor.known),
        node=NODE,
        prefix_digest=cursor.prefix.digest,
    )


def rows_from(block: RowBlock, row: int, request: worker_pb2.StreamRequest) -> RowBlock:
    """Return the rows of a block from `row` on, as views.

    Args:
        block: a block.
        row: index in the split of the first row to send.
        request: the stream's request, with the row spec.
    """
    if not block.first_row < row < block.end_row:
        return block
    skipped = row - block.first_row
    columns = ElementSpec.from_json(request.job.row_spec).columns
    rest = slice_run(columns, block.buffers, skipped, block.rows)
    digests = block.digests[skipped:]
    return RowBlock(row, block.rows - skipped, tuple(rest), digests, node=block.node)
