"""Blocks of several splits in one message of a connection, and their encoding on the wire.

A `ConnectResponse` message is ordinary protobuf. It is written by hand, as in `blocks`: gRPC needs
one copy of all rows, into the message. A direct connection needs none.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from google.protobuf.message import DecodeError

from distributed_input.api.proto import worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock, read_varint, varint
from distributed_input.rows.runs import Buffer

_FRAME_TAG = bytes(((worker_pb2.ConnectResponse.BLOCKS_FIELD_NUMBER << 3) | 2,))
_BLOCK_TAG = bytes(((worker_pb2.StreamBlock.BLOCK_FIELD_NUMBER << 3) | 2,))


@dataclass(frozen=True)
class Frame:
    """What a connection carries for one stream.

    Attributes:
        stream: number of the stream.
        blocks: consecutive blocks; one after decoding, none with an error.
        error: ends the stream.
    """

    stream: int
    blocks: Sequence[RowBlock] = ()
    error: worker_pb2.StreamError | None = None


def encode(frames: Iterable[Frame]) -> bytes:
    """Return the serialized message with these frames. Copies the rows once."""
    return b"".join(encoded_pieces(frames))


def encoded_pieces(frames: Iterable[Frame]) -> list[Buffer]:
    """Return the serialized message with these frames as pieces, without a copy of the rows."""
    return [piece for frame in frames for piece in _pieces(frame)]


def _pieces(frame: Frame) -> list[Buffer]:
    end = worker_pb2.StreamBlock(stream=frame.stream, error=frame.error).SerializeToString()
    if not frame.blocks:
        return [_FRAME_TAG, varint(len(end)), end]
    block = blocks.encoded_pieces(frame.blocks)
    size = sum(memoryview(piece).nbytes for piece in block)
    start = _BLOCK_TAG + varint(size)
    return [_FRAME_TAG, varint(len(start) + size + len(end)), start, *block, end]


def has_blocks(data: bytes) -> bool:
    """Return whether a message has frames. Otherwise it is about the connection itself."""
    return data[:1] == _FRAME_TAG


def decode_control(data: bytes) -> worker_pb2.ConnectResponse:
    """Return a message without frames.

    Raises:
        ValueError: `data` is not such a message.
    """
    try:
        return worker_pb2.ConnectResponse.FromString(data)
    except DecodeError as error:
        raise ValueError(f"not a message of a connection: {error}") from error


def decode(data: bytes | memoryview) -> Iterator[Frame]:
    """Yield the frames of a message. The rows of a large block are a view of `data`.

    Raises:
        ValueError: `data` is not such a message, or the sizes of a block are inconsistent.
    """
    view, at = memoryview(data), 0
    try:
        while at < len(data):
            if data[at : at + 1] != _FRAME_TAG:
                raise ValueError("not a message of a connection")
            size, start = read_varint(data, at + 1)
            at = start + size
            if at > len(data):
                raise ValueError("a message of a connection is cut off")
            yield _decode(view[start:at], len(data))
    except (DecodeError, IndexError) as error:
        raise ValueError(f"not a message of a connection: {error}") from error


def _decode(frame: memoryview, total: int) -> Frame:
    if frame[:1] != _BLOCK_TAG:
        end = worker_pb2.StreamBlock.FromString(bytes(frame))
        return Frame(end.stream, error=end.error)
    size, start = read_varint(frame, 1)
    if start + size > len(frame):
        raise ValueError("a block of a connection is cut off")
    end = worker_pb2.StreamBlock.FromString(bytes(frame[start + size :]))
    block: bytes | memoryview = frame[start : start + size]
    if 2 * size < total:
        # A small block may be kept for long. It must not keep the whole message in memory.
        block = bytes(block)
    return Frame(end.stream, (blocks.decode(block),))
