from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import frames
from distributed_input.link.blocks.frames import Frame
from distributed_input.rows.blocks import RowBlock


def block_of(first: int, sizes: Sequence[int], **fields: Any) -> RowBlock:
    """Return rows with a fixed-width column and a variable-width one; `sizes` are of the latter."""
    rows = len(sizes)
    fixed = (np.arange(first, first + rows) % 251).astype(np.uint8)
    lengths = np.array(sizes, np.int64).view(np.uint8)
    data = np.arange(sum(sizes)).astype(np.uint8)
    digests = np.arange(first, first + rows, dtype=np.uint64)
    return RowBlock(first, rows, (fixed, lengths, data), digests, **fields)


def fields_of(block: RowBlock) -> dict[str, Any]:
    """Return all fields of a block, in a form that can be compared."""
    fields = dict(vars(block))
    fields["buffers"] = [bytes(buffer) for buffer in block.buffers]
    fields["digests"] = block.digests.tolist()
    return fields


def joined(parts: Sequence[RowBlock]) -> RowBlock:
    """Return consecutive blocks as one."""
    return replace(
        parts[0],
        rows=sum(block.rows for block in parts),
        buffers=tuple(map(np.concatenate, zip(*(one.buffers for one in parts), strict=True))),
        digests=np.concatenate([block.digests for block in parts]),
        last=parts[-1].last,
    )


row_sizes = st.lists(st.integers(0, 20), max_size=9)


@st.composite
def frame_lists(draw: st.DrawFn) -> list[Frame]:
    return draw(st.lists(st.one_of(row_frames(), error_frames(), report_frames()), max_size=6))


@st.composite
def row_frames(draw: st.DrawFn) -> Frame:
    first = at = draw(st.integers(0, 1 << 40))
    parts = []
    for sizes in draw(st.lists(row_sizes, min_size=1, max_size=4)):
        parts.append(block_of(at, sizes))
        at += len(sizes)
    parts[0] = replace(
        parts[0],
        prefix_differs=draw(st.booleans()),
        node=draw(st.sampled_from(["", "x86"])),
        prefix_digest=first,
    )
    parts[-1] = replace(parts[-1], last=draw(st.booleans()))
    return Frame(draw(st.integers(0, 2**32 - 1)), parts)


@st.composite
def error_frames(draw: st.DrawFn) -> Frame:
    error = worker_pb2.StreamError(kind="UnavailableError", message=draw(st.text()))
    return Frame(draw(st.integers(0, 9)), error=error)


@st.composite
def report_frames(draw: st.DrawFn) -> Frame:
    nothing = np.zeros(0, np.uint64)
    token, replayed = draw(st.binary()), draw(st.integers(0, 1 << 40))
    block = RowBlock(0, 0, (), nothing, resume_token=token, replayed=replayed)
    return Frame(draw(st.integers(0, 9)), (block,))


@given(frame_lists())
def test_what_is_encoded_is_decoded(sent: list[Frame]) -> None:
    received = list(frames.decode(frames.encode(sent)))
    assert [one.stream for one in received] == [one.stream for one in sent]
    for before, after in zip(sent, received, strict=True):
        if before.error is not None:
            assert (after.error, after.blocks) == (before.error, ())
        else:
            (block,) = after.blocks
            assert after.error is None
            assert fields_of(block) == fields_of(joined(before.blocks))


@given(frame_lists())
def test_a_message_is_ordinary_protobuf(sent: list[Frame]) -> None:
    data = frames.encode(sent)
    message = worker_pb2.ConnectResponse.FromString(data)
    read = [(frame.stream, frame.error, frame.blocks) for frame in frames.decode(data)]
    assert [one.stream for one in message.blocks] == [stream for stream, _, _ in read]
    for one, (_, error, found) in zip(message.blocks, read, strict=True):
        if one.HasField("error"):
            assert error == one.error
        else:
            assert one.block.payload == b"".join(map(bytes, found[0].buffers))
            assert (one.block.rows, one.block.node) == (found[0].rows, found[0].node)


@given(frame_lists(), st.data())
def test_damaged_messages_raise_only_value_errors(sent: list[Frame], data: st.DataObject) -> None:
    message = bytearray(frames.encode(sent) or b"\0")
    for _ in range(data.draw(st.integers(1, 3))):
        message[data.draw(st.integers(0, len(message) - 1))] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(message)))
    for damaged in (bytes(message), bytes(message[:cut])):
        try:
            received = list(frames.decode(damaged))
        except ValueError:
            continue
        for frame in received:  # it is a message again
            for block in frame.blocks:
                assert len(block.digests) == block.rows


@given(st.lists(row_frames(), min_size=1, max_size=4), st.data())
def test_a_message_that_is_cut_off_is_refused(sent: list[Frame], data: st.DataObject) -> None:
    message = frames.encode(sent)
    borders = {len(frames.encode(sent[:count])) for count in range(len(sent) + 1)}
    cut = data.draw(st.integers(0, len(message)).filter(lambda at: at not in borders))
    with pytest.raises(ValueError, match="connection"):
        list(frames.decode(message[:cut]))


def test_a_block_that_ends_behind_its_frame_is_refused() -> None:
    block = b"\x7a\x05"  # 5 bytes that are not there
    for damaged in (b"\x0a\x02" + block, b"\x0a\x04\x7a\x02" + block):
        with pytest.raises(ValueError, match=r"cut off|inconsistent"):
            list(frames.decode(damaged))


@pytest.mark.parametrize(("large", "stays"), [(0, False), (50_000, True)])
def test_only_a_block_of_half_a_message_keeps_it_in_memory(large: int, stays: bool) -> None:
    others = [Frame(number, [block_of(0, [1000])]) for number in (2, 3)]
    message = frames.encode([Frame(1, [block_of(0, [1000 + large])]), *others])
    received = list(frames.decode(message))
    kept = [np.shares_memory(one.blocks[0].buffers[2], as_array(message)) for one in received]
    assert kept == [stays, False, False]
    assert [one.blocks[0].buffers[2].nbytes for one in received] == [1000 + large, 1000, 1000]


def as_array(message: bytes) -> Any:
    return np.frombuffer(message, np.uint8)
