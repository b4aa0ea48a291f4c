"""The splits of a worker whose next rows take long."""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from distributed_input.api.errors import as_utf8
from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import IN_TENSORFLOW, STALL_SECONDS, dataset_name
from distributed_input.graph.user_code import is_library, is_own
from distributed_input.worker.streams.block_producer import BlockProducer


def stalled_split(producer: BlockProducer, now: float) -> types_pb2.StalledSplit | None:
    """Return the split of a producer whose next block takes longer than STALL_SECONDS, or None.

    A replay is progress, because it returns a report every second.

    Args:
        producer: the producer.
        now: current time, on a monotonic clock.
    """
    if producer.running_since is None or now - producer.running_since < STALL_SECONDS:
        return None
    (job, _), epoch, split = producer.key
    return types_pb2.StalledSplit(
        dataset=dataset_name(types_pb2.Job.FromString(job)),
        jobs=sorted(producer.usage.open),
        epoch=epoch,
        split=split,
        row=producer.window.head,
        seconds=now - producer.running_since,
        at=place_of(producer.split.thread),
    )


def place_of(thread: int) -> str:
    """Return what a thread runs now, as text for people."""
    return as_utf8(_place(sys._current_frames().get(thread)))  # noqa: SLF001 - documented


def _place(frame: FrameType | None) -> str:
    """Return what a thread runs: its innermost line of the user's code, and what this line calls.

    Without a line of the user, it runs a dataset in TensorFlow. TensorFlow calls the functions that
    a dataset maps in threads of its own, which have no part in this.
    """
    # Not `extract_stack`, which reads files: their file system may be what the split waits for.
    lines = [(one.f_code, line) for one, line in traceback.walk_stack(frame)] if frame else []
    if not lines:
        return ""
    users = [one for one in lines if not is_library(one[0].co_filename)]
    if not users:
        return IN_TENSORFLOW
    shown = users[:1]
    if lines[0] != users[0] and not is_own(lines[0][0].co_filename):
        shown.append(lines[0])
    return ", ".join(
        IN_TENSORFLOW
        if "/tensorflow/" in code.co_filename
        else f"in {code.co_name} ({code.co_filename}:{line})"
        for code, line in shown
    )
