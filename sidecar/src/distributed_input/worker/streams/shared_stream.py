"""One stream of a split that other streams may read too."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.compute.task_queue import Need
from distributed_input.worker.node import NODE
from distributed_input.worker.streams.dataset_usage import DatasetUsage, sharing_key


class _Producers(Protocol):
    """The running splits: `SharedProducers`, which imports this module."""

    def read(self, stream: SharedStream, limit: int) -> Sequence[RowBlock]: ...

    def end(self, stream: SharedStream) -> None: ...


class SharedStream:
    """A stage: the rows of a split from a row on. No method waits.

    The attributes belong to `SharedProducers`, and its lock guards them.

    Args:
        producers: the running splits.
        request: request of a sidecar.
        counters: updated with what is read.
        wake: called when `next` may return more than before, from any thread and without a lock.

    Attributes:
        key: key of the split. Streams with the same key get the same rows.
        usage: the jobs that read the dataset; None before the first `next`.
        request: the sidecar's request, or `remaining_request` after a change of producers.
        wanted: bytes that the reader takes as soon as they are ready.
        prefix: rows before the stream's next row; None until its first block.
        checked: rows whose digest the request has, as the stream's producer produced them; None if
            they were not known when the stream joined the producer.
        leads: whether the producer was started for this stream. It then checks the request itself.
        replayed: replay progress of the producer that was last sent to the stream.
        states: number of the producer's saved state that was last sent to the stream.
        ended: whether its last block was read, or it is closed or has an error.
        error: what ended it.
    """

    def __init__(
        self,
        producers: _Producers,
        request: worker_pb2.StreamRequest,
        counters: StreamCounters,
        wake: Callable[[], None],
    ) -> None:
        self.request, self.counters, self.wake = request, counters, wake
        self.key = sharing_key(request)
        self.usage: DatasetUsage | None = None
        self.wanted = 0
        self.prefix: Prefix | None = None
        self.checked: Prefix | None = None
        self.leads = self.ended = False
        self.replayed = self.states = 0
        self.error: Exception | None = None
        self._producers = producers

    def next(self, limit: int, /) -> Sequence[RowBlock]:
        """Return what is ready: reports, and rows of about `limit` bytes. Have more produced.

        Raises:
            UnavailableError: rows that were produced again differ from the rows that were sent.
            Exception: any error of the split.
        """
        return self._producers.read(self, limit)

    def state(self) -> Prefix:
        """Return the rows before the next row."""
        return self.prefix or self.known

    def close(self) -> None:
        """Let others have the place of this stream."""
        self._producers.end(self)

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
        # Sources take turns as jobs do: a heavy one is ahead in its epochs and ordinals.
        name, source = request.job.name, request.job.entry_point.source
        reader = f"{name} {source}" if source else name
        return Need((reader, request.seed), (request.epoch, request.ordinal))


def remaining_request(stream: SharedStream) -> worker_pb2.StreamRequest:
    """Return a request for the rows after those of the stream that checks the rows before it."""
    if stream.prefix is None:
        return stream.request
    request = worker_pb2.StreamRequest()
    request.CopyFrom(stream.request)
    request.start_row = request.prefix_rows = stream.prefix.rows
    request.prefix_digest = stream.prefix.digest
    request.check_prefix = stream.prefix.rows > 0
    return request


def first_block(block: RowBlock, stream: SharedStream) -> RowBlock:
    """Return the first block of a stream, with the fields of a first block."""
    if stream.leads:
        return replace(block, node=NODE)
    checked = stream.prefix if stream.checked is None else stream.checked
    assert checked is not None
    differs = stream.request.check_prefix and not checked.matches(stream.known)
    return replace(block, prefix_differs=differs, node=NODE)


def rows_from(block: RowBlock, before: Prefix, request: worker_pb2.StreamRequest) -> RowBlock:
    """Return the rows of a block behind those of `before`, as views.

    Args:
        block: a block.
        before: the rows that the stream has.
        request: the stream's request, with the row spec.
    """
    if not block.first_row < before.rows < block.end_row:
        return block
    columns = ElementSpec.from_json(request.job.row_spec).columns
    return block.part(columns, before, block.end_row - before.rows)
