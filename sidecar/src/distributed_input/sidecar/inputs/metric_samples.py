"""The metrics of one job in a sidecar."""

from __future__ import annotations

from collections.abc import Iterator

from distributed_input.runtime import metrics
from distributed_input.sidecar.inputs.job_input import JobInput


def samples(job: JobInput) -> Iterator[metrics.Sample]:
    """Yield the present value of each metric. Counters count from the start of the process."""
    stats, streams, link, name = job.sessions.stats(), job.streams, job.link, job.config.name
    for definition, value in (
        (metrics.SIDECAR_ROWS, stats.rows),
        (metrics.SIDECAR_BYTES, stats.bytes),
        (metrics.SIDECAR_BATCHES, stats.batches),
        (metrics.SIDECAR_WAIT_SECONDS, stats.wait_seconds),
        (metrics.SIDECAR_WALL_SECONDS, stats.wall_seconds),
        (metrics.SIDECAR_BUFFER_FILL, stats.buffer_fill),
        (metrics.SIDECAR_OPEN_STREAMS, link.pool.open_streams),
        (metrics.SIDECAR_RECEIVED_BYTES, streams.bytes),
        (metrics.SIDECAR_WORKER_LOSSES, link.pool.lost_workers),
        (metrics.SIDECAR_REPLAYS, streams.replays),
        (metrics.SIDECAR_REPLAY_MISMATCHES, streams.mismatches),
        (metrics.SIDECAR_EPOCH, stats.epoch),
        (metrics.SIDECAR_USEFUL_WORKERS, stats.useful_workers),
        (metrics.SIDECAR_RING_BYTES, job.slots.size),
        (metrics.SIDECAR_RING_USED_BYTES, job.slots.used),
        (metrics.SIDECAR_HEARTBEAT_AGE_SECONDS, link.heartbeat_age),
    ):
        yield metrics.sample(definition, value, input=name)
    for cause, count in streams.reconnects.copy().items():
        yield metrics.sample(metrics.SIDECAR_RECONNECTS, count, input=name, cause=cause)
