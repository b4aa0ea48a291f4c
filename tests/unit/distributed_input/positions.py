"""The largest position that a job can have."""

from __future__ import annotations

from distributed_input.api.proto import trainer_pb2
from distributed_input.api.resource.input import MAX_PARTITIONS

_ROWS = 2**64 - 1
_SMALL = 2**32 - 1


def largest_position() -> trainer_pb2.Position:
    """Return a position with every field set, of the most partitions, with the longest varints."""
    every = range(MAX_PARTITIONS)
    return trainer_pb2.Position(
        job="x" * 253,
        epoch=_ROWS,
        step=_ROWS,
        consumers=MAX_PARTITIONS,
        base_step=_ROWS,
        base_rows=[_ROWS for _ in every],
        anchors=[trainer_pb2.Anchor(ordinal=_SMALL, rows=_ROWS, ended=True) for _ in every],
        prefixes=[
            trainer_pb2.Prefix(
                partition=p,
                split=_SMALL,
                rows=_ROWS,
                digest=_ROWS,
                anchor_rows=_ROWS,
                anchor_digest=_ROWS,
            )
            for p in every
        ],
        consumer=_SMALL,
        end=True,
        partitions=MAX_PARTITIONS,
        global_batch_size=_SMALL,
        seed=_ROWS,
        extra_units=_SMALL,
    )
