"""A stream's blocks start at its row, and its requests check the rows that it has."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.worker.node import NODE
from distributed_input.worker.streams.shared_stream import (
    SharedStream,
    first_block,
    remaining_request,
    rows_from,
)
from tests.unit.distributed_input.worker.streams.blockcases import (
    ROW,
    block_of,
    end_of,
    prefix_of,
    rows_in,
)

JOB = types_pb2.Job(name="a", row_spec=ROW.to_json())


def request_of(start_row: int = 0, known: int | None = None) -> worker_pb2.StreamRequest:
    request = worker_pb2.StreamRequest(job=JOB, start_row=start_row)
    if known is not None:
        request.prefix_rows, request.check_prefix = known, True
        request.prefix_digest = prefix_of(known).digest
    return request


def stream_of(request: worker_pb2.StreamRequest, rows: int | None = None) -> SharedStream:
    producers: Any = None
    stream = SharedStream(producers, request, StreamCounters(), lambda: None)
    stream.prefix = None if rows is None else prefix_of(rows)
    return stream


@pytest.mark.parametrize("row", [4, 5, 7])
def test_a_block_has_the_rows_from_the_stream_on(row: int) -> None:
    block = rows_from(block_of(4, 4), prefix_of(row), request_of())
    assert (block.first_row, block.end_prefix) == (row, prefix_of(8))
    assert rows_in([block]) == list(range(row, 8))
    assert block.digests.tolist() == block_of(row, 8 - row).digests.tolist()


def test_a_whole_block_and_the_last_block_are_sent_as_they_are() -> None:
    for block in (block_of(4, 4), end_of(4)):
        assert rows_from(block, prefix_of(4), request_of()) is block
    end = end_of(4)
    assert rows_from(end, prefix_of(9), request_of()) is end


def test_the_row_is_that_of_the_request_until_the_first_block() -> None:
    stream = stream_of(request_of(start_row=5))
    assert stream.row == 5
    assert remaining_request(stream) is stream.request
    stream.prefix = prefix_of(7)
    assert stream.row == 7


@pytest.mark.parametrize("rows", [0, 1, 6])
def test_the_remaining_request_checks_all_rows_before_the_stream(rows: int) -> None:
    stream = stream_of(request_of(), rows)
    rest = remaining_request(stream)
    assert (rest.start_row, rest.prefix_rows, rest.check_prefix) == (rows, rows, rows > 0)
    assert rest.prefix_digest == prefix_of(rows).digest
    assert rest.job == JOB
    assert stream.request.start_row == 0


@pytest.mark.parametrize(("change", "differs"), [(0, False), (1, True)])
@pytest.mark.parametrize("known", [3, 5])
def test_the_header_has_the_result_of_the_check(known: int, change: int, differs: bool) -> None:
    request = request_of(start_row=5, known=known)
    request.prefix_digest += change
    stream = stream_of(request, 5)
    if known != 5:
        stream.checked = prefix_of(known)
    block = first_block(block_of(5, 2), stream)
    assert block.prefix_differs == differs
    assert (block.node, block.prefix_digest) == (NODE, prefix_of(5).digest)
    assert rows_in([block]) == [5, 6]


def test_a_request_without_a_check_has_no_difference() -> None:
    stream = stream_of(request_of(start_row=5), 5)
    assert not first_block(block_of(5, 1, prefix_differs=True), stream).prefix_differs
