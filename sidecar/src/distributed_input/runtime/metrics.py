"""Definitions of all metrics. Their names are an interface for dashboards, alerts and the operator.

Hot paths count in plain variables. A *source*, a function that returns samples, reads them only
when a scrape calls it (see `exposition`). Metrics therefore cost nothing per row.

    def source() -> list[Sample]:
        return [sample(WORKER_OPEN_STREAMS, 3)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

PREFIX = "distributed_input_"


@dataclass(frozen=True)
class Definition:
    """One metric. Names of counters end in _total. Times are in seconds, sizes in bytes."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a metric, with its label values in the definition's order."""

    definition: Definition
    value: float
    labels: tuple[str, ...]


def sample(definition: Definition, value: float, **labels: str) -> Sample:
    """Return a sample of `definition`. Raise ValueError unless `labels` are exactly its labels."""
    if set(labels) != set(definition.labels):
        raise ValueError(f"{definition.name} has the labels {definition.labels}, not {[*labels]}")
    return Sample(definition, value, tuple(labels[name] for name in definition.labels))


def _counter(name: str, help_text: str, *labels: str) -> Definition:
    return Definition(f"{PREFIX}{name}_total", "counter", help_text, labels)


def _gauge(name: str, help_text: str, *labels: str) -> Definition:
    return Definition(PREFIX + name, "gauge", help_text, labels)


WORKER_ROWS = _counter("worker_rows", "Rows sent by this worker, counted once per job.")
WORKER_BYTES = _counter("worker_bytes", "Bytes of rows sent by this worker.")
WORKER_DIRECT_BYTES = _counter(
    "worker_direct_bytes", "Bytes of messages sent over direct connections, and not over gRPC."
)
WORKER_BUSY_SECONDS = _counter(
    "worker_busy_seconds",
    "Time spent producing rows, summed over the CPUs that the worker may use.",
)
WORKER_STALL_SECONDS = _counter(
    "worker_stall_seconds",
    "Time that produced rows waited for a sidecar to receive them.",
)
WORKER_PARALLELISM = _gauge(
    "worker_parallelism", "Elements that this worker computes at the same time, at most."
)
WORKER_OPEN_STREAMS = _gauge("worker_open_streams", "Open streams; each sends one split.")
WORKER_REPLAYED_ROWS = _counter(
    "worker_replayed_rows", "Rows produced again to resume a split, and not sent."
)
WORKER_STATES = _counter(
    "worker_states",
    "States of splits: saved, restored, refused; or splits of which rows were skipped.",
    "event",
)
WORKER_STORE = _counter(
    "worker_store",
    "Rows and bytes read from the store instead of computed; splits stored, and found damaged.",
    "what",
)
WORKER_SHARED_ROWS = _counter(
    "worker_shared_rows", "Rows sent that were produced for another job of the same dataset."
)
WORKER_SHARED_BYTES = _gauge(
    "worker_shared_bytes", "Bytes of rows kept for other jobs of the same dataset."
)
WORKER_DRAINING = _gauge("worker_draining", "1 while the worker drains.")
WORKER_FAILURES = _counter(
    "worker_failures", "Streams that ended with an error, by error class.", "error"
)

_CONSUMER = ("input", "rank")  # the rank counts through all trainers
SIDECAR_ROWS = _counter("sidecar_rows", "Rows delivered to the trainer.", *_CONSUMER)
SIDECAR_BYTES = _counter("sidecar_bytes", "Bytes of batches delivered to the trainer.", *_CONSUMER)
SIDECAR_BATCHES = _counter("sidecar_batches", "Batches delivered to the trainer.", *_CONSUMER)
SIDECAR_WAIT_SECONDS = _counter(
    "sidecar_wait_seconds", "Time that the trainer waited for input.", *_CONSUMER
)
SIDECAR_WALL_SECONDS = _counter(
    "sidecar_wall_seconds", "Time since the trainer's first batch.", *_CONSUMER
)
SIDECAR_BUFFER_FILL = _gauge(
    "sidecar_buffer_fill", "Fill of the read-ahead buffer, 0 to 1.", *_CONSUMER
)
SIDECAR_OPEN_STREAMS = _gauge("sidecar_open_streams", "Streams open to workers.", *_CONSUMER)
SIDECAR_RECEIVED_BYTES = _counter(
    "sidecar_received_bytes", "Bytes received from workers.", *_CONSUMER
)
SIDECAR_RECONNECTS = _counter(
    "sidecar_reconnects",
    "Streams reopened after a failure, by cause.",
    *_CONSUMER,
    "cause",
)
SIDECAR_SOURCE_ROWS = _counter(
    "sidecar_source_rows", "Rows that steps took of a source of a mixture.", *_CONSUMER, "source"
)
SIDECAR_SOURCE_WAIT_SECONDS = _counter(
    "sidecar_source_wait_seconds",
    "Time that steps waited for the rows of a source of a mixture.",
    *_CONSUMER,
    "source",
)
SIDECAR_WORKER_LOSSES = _counter(
    "sidecar_worker_losses", "Workers whose streams failed and that were not draining.", *_CONSUMER
)
SIDECAR_REPLAYS = _counter(
    "sidecar_replays", "Splits resumed by producing a prefix again.", *_CONSUMER
)
SIDECAR_REPLAY_MISMATCHES = _counter(
    "sidecar_replay_mismatches", "Replays that produced other rows than before.", *_CONSUMER
)
SIDECAR_EPOCH = _gauge("sidecar_epoch", "Current epoch of the trainer, from 0.", *_CONSUMER)
SIDECAR_USEFUL_WORKERS = _gauge(
    "sidecar_useful_workers",
    "Number of workers that this consumer can keep busy.",
    *_CONSUMER,
)
SIDECAR_RING_BYTES = _gauge(
    "sidecar_ring_bytes", "Size of the shared memory for batches.", *_CONSUMER
)
SIDECAR_RING_USED_BYTES = _gauge(
    "sidecar_ring_used_bytes",
    "Bytes of shared memory in batches that are not released.",
    *_CONSUMER,
)
SIDECAR_HEARTBEAT_AGE_SECONDS = _gauge(
    "sidecar_heartbeat_age_seconds", "Time since the dispatcher's last response.", *_CONSUMER
)

DISPATCHER_WORKERS = _gauge("dispatcher_workers", "Live workers, by state.", "state")
DISPATCHER_CONSUMERS = _gauge("dispatcher_consumers", "Live consumers.", "job")
DISPATCHER_JOBS = _gauge("dispatcher_jobs", "Jobs registered.")
DISPATCHER_DATASETS = _gauge("dispatcher_datasets", "Traced datasets stored.")
DISPATCHER_DATASET_BYTES = _gauge("dispatcher_dataset_bytes", "Bytes of traced datasets stored.")
DISPATCHER_HEARTBEAT_AGE_SECONDS = _gauge(
    "dispatcher_heartbeat_age_seconds",
    "Age of the oldest heartbeat of live processes.",
    "kind",
)
DISPATCHER_WORKER_LOSSES = _counter(
    "dispatcher_worker_losses", "Workers whose heartbeats stopped without draining."
)
DISPATCHER_SKIPPED_RECORDS = _counter(
    "dispatcher_skipped_records",
    "Records that splits left out (spec.badRecords), once for each epoch.",
)
DISPATCHER_CONSUMER_LOSSES = _counter(
    "dispatcher_consumer_losses",
    "Consumers whose heartbeats stopped before they finished.",
    "job",
)
DISPATCHER_FENCED = _counter(
    "dispatcher_fenced", "Heartbeats of consumers that were fenced.", "job"
)
DISPATCHER_FACT_CONFLICTS = _counter(
    "dispatcher_fact_conflicts",
    "Reports about a partition that contradict earlier reports.",
    "job",
)


def definitions() -> tuple[Definition, ...]:
    """Return all metrics of this package, in the order of this file."""
    return tuple(value for value in globals().values() if isinstance(value, Definition))
