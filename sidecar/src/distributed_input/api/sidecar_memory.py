"""The memory that a sidecar needs besides its buffers. Pure.

The operator sets the limit of the container by these functions, and the sidecar keeps to them.
Sizes in bytes.
"""

from __future__ import annotations

_MIB = 1 << 20
PROCESS_BYTES = 128 * _MIB
"""A sidecar without open streams. Measured: 98 MiB."""
_LEAST_BYTES = 512 * _MIB
_STREAM_BYTES = 5 * _MIB
"""An open stream with rows of up to 64 KiB. Measured: 4.1 MiB, of which gRPC has three quarters."""
_QUEUE_BYTES, _MOST_QUEUE_BYTES = 2 * _MIB, 8 * _MIB
_QUEUES_BYTES = 64 * _MIB  # of all streams, if a queue has more than _QUEUE_BYTES
_LEAST_BLOCK_BYTES, _MOST_BLOCK_BYTES = 1 * _MIB, 4 * _MIB
_MOST_STREAMS = 512
"""Maximum of the streams of a sidecar that decides itself how many splits it opens ahead."""
_SPLITS_PER_PLACE = 2
"""Splits to open for each one that the workers can compute at the same time. While a split starts,
or has a full queue, another one is computed."""
DEFAULT_PARTITIONS = 8
"""Maximum of the default of spec.partitions, which depends on the dataset."""


def own_partitions(partitions: int | None, consumers: int, *, parallel: bool) -> int:
    """Return how many partitions one of `consumers` trainers reads, at most."""
    partitions = partitions or DEFAULT_PARTITIONS
    return partitions if parallel else -(-partitions // max(1, consumers))


def useful_read_ahead(capacity: int, partitions: int) -> int:
    """Return how many splits each partition must open ahead to use all workers, at least 1.

    `capacity`: splits that the workers can compute at the same time. `partitions`: those that all
    consumers read at the same time.
    """
    return max(1, -(-_SPLITS_PER_PLACE * capacity // partitions) - 1)


def heads_suffice(capacity: int, partitions: int) -> bool:
    """Return whether the splits that are read use all workers. Arguments as above."""
    return _SPLITS_PER_PLACE * capacity <= partitions


def most_read_ahead(partitions: int) -> int:
    """Return the maximum of the automatic read-ahead of a sidecar that reads these partitions."""
    return max(1, _MOST_STREAMS // partitions - 1)


def default_bytes(partitions: int, read_ahead: int) -> int:
    """Return the memory for a sidecar that reads these partitions, with rows of up to 1 MiB."""
    return max(_LEAST_BYTES, needed_bytes(partitions, read_ahead, 0))


def needed_bytes(partitions: int, read_ahead: int, row_bytes: int) -> int:
    """Return the memory that a sidecar needs to read these partitions.

    A `row_bytes` of 0 is unknown. A stream holds a block of at least one row, and receives another
    one.
    """
    streams = partitions * (1 + read_ahead)
    return PROCESS_BYTES + streams * (_STREAM_BYTES + 2 * row_bytes)


def fitting_read_ahead(partitions: int, read_ahead: int, row_bytes: int, available: int) -> int:
    """Return the largest number of splits up to `read_ahead` that fits, or else 0."""
    while read_ahead and needed_bytes(partitions, read_ahead, row_bytes) > available:
        read_ahead -= 1
    return read_ahead


def holds_one_row(partitions: int, row_bytes: int, available: int) -> bool:
    """Return whether there is room for the least: one row of each partition, twice."""
    return PROCESS_BYTES + partitions * 2 * row_bytes <= available


def queue_bytes(streams: int, most_streams: int, available: int) -> int:
    """Return the size at which a stream's queue is full. A queue holds at least one block.

    While few streams are open, queues and blocks are larger: a block costs about a millisecond of
    CPU time in worker and sidecar, whatever its size.
    """
    room = max(0, available - PROCESS_BYTES) // 3
    least = min(_QUEUE_BYTES, room // max(1, most_streams))
    return max(least, min(_MOST_QUEUE_BYTES, min(room, _QUEUES_BYTES) // max(1, streams)))


def head_bytes(partitions: int, available: int) -> int:
    """Return the most bytes that may wait of the split that a partition reads now."""
    return max(0, available - PROCESS_BYTES) // 3 // max(1, partitions)


def block_bytes(queue: int) -> int:
    """Return the size of the largest block for a queue of this size: two fit, if it is large."""
    return max(_LEAST_BLOCK_BYTES, min(_MOST_BLOCK_BYTES, queue // 2))
