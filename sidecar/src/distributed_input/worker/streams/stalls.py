"""The splits of a worker whose next rows take long."""

from __future__ import annotations

import sys
import traceback
from types import FrameType

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import STALL_SECONDS, dataset_name
from distributed_input.tfdata.user_code import is_library
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
    (job, _), epoch, split, _ = producer.key
    return types_pb2.StalledSplit(
        dataset=dataset_name(types_pb2.Job.FromString(job)),
        jobs=sorted(producer.usage.open),
        epoch=epoch,
        split=split,
        row=producer.window.head,
        seconds=now - producer.running_since,
        at=_place(sys._current_frames().get(producer.thread)),  # noqa: SLF001 - documented
    )


def _place(frame: FrameType | None) -> str:
    """Return what a thread runs: its innermost line of the user's code, and its innermost line.

    TensorFlow calls the functions that a dataset maps in threads of its own, which have no part in
    this.
    """
    # Not `extract_stack`, which reads files: their file system may be what the split waits for.
    lines = [(one.f_code, line) for one, line in traceback.walk_stack(frame)] if frame else []
    users = [one for one in lines[1:] if not is_library(one[0].co_filename)]
    return ", ".join(
        f"in {code.co_name} ({code.co_filename}:{line})" for code, line in users[:1] + lines[:1]
    )
