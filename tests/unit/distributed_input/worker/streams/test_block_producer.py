"""A producer serves a stream only if it can prove the rows before."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.streams.block_producer import BlockProducer
from distributed_input.worker.streams.block_window import BlockWindow
from distributed_input.worker.streams.dataset_usage import DatasetUsage
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_stream import SharedStream
from tests.unit.distributed_input.worker.streams.blockcases import (
    block_of,
    end_of,
    prefix_of,
    progress_of,
    state_of,
)

NO_PRODUCERS: Any = None


def producer_of(start: int = 0, rows: int = 0, blocks: Any = None) -> BlockProducer:
    split = RunningSplit(worker_pb2.StreamRequest(start_row=start), lambda: blocks)
    window = BlockWindow(start)
    producer = BlockProducer(((b"", 0), 0, 0), split, window, StreamCounters(), DatasetUsage())
    if rows:
        producer.publish(block_of(start, rows, prefix_digest=prefix_of(start).digest))
    return producer


def cursor_at(row: int, known: int | None = None, change: int = 0) -> SharedStream:
    request = worker_pb2.StreamRequest(start_row=row)
    if known is not None:
        request.prefix_rows, request.check_prefix = known, True
        request.prefix_digest = prefix_of(known).digest + change
    return SharedStream(NO_PRODUCERS, request, StreamCounters(), lambda: None)


@pytest.mark.parametrize(("row", "served"), [(3, False), (4, True), (8, True), (9, False)])
def test_a_stream_is_served_within_the_window(row: int, served: bool) -> None:
    assert producer_of(4, 4).can_serve(cursor_at(row)) == served


def test_a_prefix_that_the_producer_cannot_prove_is_not_served() -> None:
    assert not producer_of(4, 4).can_serve(cursor_at(6, known=2))
    assert producer_of(0, 8).can_serve(cursor_at(6, known=2))


def test_the_prefix_before_the_first_block_is_proven_when_it_is_produced() -> None:
    assert producer_of(4).can_serve(cursor_at(4, known=4))
    assert not producer_of(4).can_serve(cursor_at(4, known=3))


@pytest.mark.parametrize(("change", "served"), [(0, True), (1, False)])
def test_a_stream_with_rows_changes_only_to_the_same_rows(change: int, served: bool) -> None:
    cursor = cursor_at(6, known=6, change=change)
    cursor.prefix = prefix_of(6)
    assert producer_of(4, 4).can_serve(cursor) == served


def test_a_new_stream_may_join_and_gets_the_difference() -> None:
    cursor = cursor_at(6, known=6, change=1)
    assert producer_of(4, 4).can_serve(cursor)
    assert cursor.checked == prefix_of(6)


def test_a_failed_or_different_producer_serves_no_other_stream() -> None:
    failed, differs = producer_of(0, 4), producer_of(4)
    failed.error = OSError("the disk is gone")
    differs.publish(block_of(4, 4, prefix_differs=True))
    started = cursor_at(4)
    started.prefix = prefix_of(4)
    for producer in (failed, differs):
        assert not producer.can_serve(cursor_at(4))
        assert not producer.has_prefix_of(started)
    assert producer_of(4, 4).has_prefix_of(started)


def test_progress_is_sent_once_and_ends_with_the_first_block() -> None:
    producer, cursor = producer_of(6), cursor_at(6)
    producer.publish(progress_of(2))
    first = producer.next_report(cursor)
    assert first is not None
    assert first.replayed == 2
    assert producer.next_report(cursor) is None
    producer.publish(progress_of(4))
    assert producer.next_report(cursor) is not None
    producer.publish(progress_of(1))  # an anchor was refused, and the replay began again
    assert producer.next_report(cursor) is not None
    producer.publish(block_of(6, 1))
    assert producer.next_report(cursor_at(6)) is None
    assert producer.window.head == 7


def test_a_state_is_reported_once_and_after_the_rows_before_it() -> None:
    producer, behind, at = producer_of(0, 4), cursor_at(3), cursor_at(4)
    producer.streams = [behind, at]
    producer.publish(state_of(b"state"))
    assert producer.next_report(behind) is None
    report = producer.next_report(at)
    assert report is not None
    assert report.resume_token == b"state"
    assert producer.next_report(at) is None
    producer.drop_sent_state()
    behind.prefix = prefix_of(4)
    assert producer.next_report(behind) is not None
    producer.drop_sent_state()
    assert producer.state is None


def test_closing_a_split_that_fails_to_close_raises_nothing() -> None:
    def blocks() -> Generator[RowBlock, None, None]:
        try:
            yield block_of(0, 1)
        finally:
            raise OSError("the disk is gone")

    producer = producer_of(blocks=blocks())
    assert producer.split.next(1)
    assert not producer.close()
    assert not producer.split.next(1)


def test_the_end_is_kept_outside_of_the_window() -> None:
    producer = producer_of(0, 4)
    producer.publish(end_of(4))
    assert producer.window.end is not None
    assert producer.window.head == 4
