"""What workers send to sidecars: blocks of rows, the spec of a row, and saved states."""

from __future__ import annotations

import numpy as np

from distributed_input.api.errors import SpecError
from distributed_input.api.proto import worker_pb2
from distributed_input.link.blocks import frames
from distributed_input.link.blocks.frames import Frame
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.streams.row_slices import BlockSlices
from distributed_input.worker.states import saved_state
from distributed_input.worker.states.saved_state import SavedState, StateError
from testing.fuzz.target import Subject, Target

_SPEC = ElementSpec(
    {"image": 0, "label": (1, None)},
    (Leaf("image", "dense", "uint8", (4,)), Leaf("label/0", "dense", "string", ())),
)
_SPECS = [
    _SPEC,
    ElementSpec(0, (Leaf("", "unranked", "float32", ()),)),
    ElementSpec(
        [0, 1],
        (Leaf("0", "ragged", "int32", (None, None, 2), 1), Leaf("1", "sparse", "bool", (None, 3))),
    ),
]


def _block(rows: int = 3) -> RowBlock:
    text = b"abcdef"[: 2 * rows]
    buffers = (
        np.arange(4 * rows, dtype=np.uint8),
        np.full(rows, 4, np.uint32).view(np.uint8),
        np.full(rows, 2, np.uint32).view(np.uint8),
        np.frombuffer(text, np.uint8),
    )
    digests = np.arange(rows, dtype=np.uint64)
    return RowBlock(7, rows, buffers, digests, node="worker", prefix_digest=5, last=True)


def _blocks() -> Subject:
    columns = _SPEC.columns

    def parse(data: bytes) -> None:
        block = blocks.decode(data)
        if block.rows > 1 and len(block.buffers) == _SPEC.buffer_count:
            BlockSlices(columns, block).slice(1, block.rows)

    report = RowBlock(0, 0, (), np.zeros(0, np.uint64), replayed=9, resume_token=b"state")
    seeds = [blocks.encode(_block()), blocks.encode(report)]
    return Subject(parse, seeds, (ValueError,))


def _frames() -> Subject:
    def parse(data: bytes) -> None:
        if frames.has_blocks(data):
            for _frame in frames.decode(data):
                pass
        else:
            frames.decode_control(data)

    error = worker_pb2.StreamError(kind="SpecError", message="wrong")
    offer = worker_pb2.TransferOffer(port=7072, ticket=bytes(32), local="name")
    seeds = [
        frames.encode([Frame(1, (_block(), _block(1))), Frame(2, error=error)]),
        frames.encode([Frame(300, (_block(2),))]),
        worker_pb2.ConnectResponse(offer=offer).SerializeToString(),
        worker_pb2.ConnectResponse(moved=True).SerializeToString(),
    ]
    return Subject(parse, seeds, (ValueError,))


def _specs() -> Subject:
    def parse(data: bytes) -> None:
        spec = ElementSpec.from_json(data.decode("utf-8", "replace"))
        spec.to_json()
        spec.unflatten(list(range(len(spec.leaves))))
        assert spec.buffer_count >= 0

    return Subject(parse, [one.to_json().encode() for one in _SPECS], (SpecError,), is_json=True)


def _states() -> Subject:
    start = saved_state._OVERHEAD - saved_state._FIELDS.size

    def seal(data: bytes) -> bytes:
        fields, rest = data[start : saved_state._OVERHEAD], data[saved_state._OVERHEAD :]
        return saved_state._MAGIC + saved_state._checksum(fields, rest) + fields + rest

    seeds = [
        saved_state.encode(SavedState(bytes(16), Prefix(100, 5), 8, b"iterator")),
        saved_state.encode(SavedState(bytes(16), Prefix(2**40, 2**63), 1, b"")),
    ]
    return Subject(saved_state.decode, seeds, (StateError,), seal=seal)


TARGETS = (
    Target("rows/blocks", "worker → sidecar, gRPC", _blocks, 2),
    Target("rows/frames", "worker → sidecar, gRPC and direct connection", _frames, 2),
    Target("rows/specs", "trainer → sidecar → worker, a field of the job", _specs),
    Target("rows/states", "sidecar → worker, and the folder of saved states", _states),
)
