"""The splits of a worker whose next rows take long."""

from __future__ import annotations

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import STALL_SECONDS, dataset_name
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
    )
