"""All metrics: their names are an interface, for dashboards, alerts and the operator.

Hot paths keep plain numbers of their own; a *source*, a function that gives samples, is asked
for them only when somebody scrapes (see `exposition`). So measuring costs a row nothing.

    def source() -> list[Sample]:
        return [sample(WORKER_OPEN_STREAMS, 3)]
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

PREFIX = "distributed_input_"


@dataclass(frozen=True)
class Definition:
    """One metric: its full name (counters end in _total), times in seconds, sizes in bytes."""

    name: str
    kind: Literal["counter", "gauge"]
    help: str
    labels: tuple[str, ...] = ()


class Sample(NamedTuple):
    """One value of a metric, with the values of its labels in the definition's order."""

    definition: Definition
    value: float
    labels: tuple[str, ...]


def sample(definition: Definition, value: float, **labels: str) -> Sample:
    """A sample of `definition`; the keyword arguments are exactly its labels (else ValueError)."""
    if set(labels) != set(definition.labels):
        raise ValueError(f"{definition.name} has the labels {definition.labels}, not {[*labels]}")
    return Sample(definition, value, tuple(labels[name] for name in definition.labels))


def _counter(name: str, help_text: str, *labels: str) -> Definition:
    return Definition(f"{PREFIX}{name}_total", "counter", help_text, labels)


def _gauge(name: str, help_text: str, *labels: str) -> Definition:
    return Definition(PREFIX + name, "gauge", help_text, labels)


WORKER_ROWS = _counter("worker_rows", "Rows sent by this worker, once for each job.")
WORKER_BYTES = _counter("worker_bytes", "Bytes of rows sent by this worker.")
WORKER_BUSY_SECONDS = _counter(
    "worker_busy_seconds", "Time spent producing rows, added up over streams."
)
WORKER_STALL_SECONDS = _counter(
    "worker_stall_seconds",
    "Time in which produced rows waited for a sidecar to take them.",
)
WORKER_OPEN_STREAMS = _gauge("worker_open_streams", "Splits being streamed now.")
WORKER_REPLAYED_ROWS = _counter(
    "worker_replayed_rows", "Rows produced again, unsent, to resume a split."
)
WORKER_SHARED_ROWS = _counter(
    "worker_shared_rows", "Rows sent that were made for another job of the same dataset."
)
WORKER_SHARED_BYTES = _gauge("worker_shared_bytes", "Rows kept for other jobs of a dataset.")
WORKER_DRAINING = _gauge("worker_draining", "1 while the worker drains.")
WORKER_FAILURES = _counter("worker_failures", "Streams ended by an error, by its class.", "error")

SIDECAR_ROWS = _counter("sidecar_rows", "Rows delivered to the trainer.", "input")
SIDECAR_BYTES = _counter("sidecar_bytes", "Bytes of batches delivered to the trainer.", "input")
SIDECAR_BATCHES = _counter("sidecar_batches", "Batches delivered to the trainer.", "input")
SIDECAR_WAIT_SECONDS = _counter(
    "sidecar_wait_seconds", "Time in which the trainer waited for input.", "input"
)
SIDECAR_WALL_SECONDS = _counter(
    "sidecar_wall_seconds", "Time since the trainer's first batch.", "input"
)
SIDECAR_BUFFER_FILL = _gauge("sidecar_buffer_fill", "Share of the read-ahead filled.", "input")
SIDECAR_OPEN_STREAMS = _gauge("sidecar_open_streams", "Streams open to workers.", "input")
SIDECAR_RECEIVED_BYTES = _counter("sidecar_received_bytes", "Bytes received of workers.", "input")
SIDECAR_RECONNECTS = _counter(
    "sidecar_reconnects",
    "Streams opened again after a break, by cause.",
    "input",
    "cause",
)
SIDECAR_WORKER_LOSSES = _counter(
    "sidecar_worker_losses", "Workers that broke streams without draining.", "input"
)
SIDECAR_REPLAYS = _counter(
    "sidecar_replays", "Splits resumed by producing a prefix again.", "input"
)
SIDECAR_REPLAY_MISMATCHES = _counter(
    "sidecar_replay_mismatches", "Replays that made other rows than before.", "input"
)
SIDECAR_EPOCH = _gauge("sidecar_epoch", "Epoch that the trainer reads, from 0.", "input")
SIDECAR_USEFUL_WORKERS = _gauge(
    "sidecar_useful_workers",
    "Workers that this consumer can keep busy; more do not help.",
    "input",
)
SIDECAR_RING_BYTES = _gauge("sidecar_ring_bytes", "Size of the shared memory ring.", "input")
SIDECAR_RING_USED_BYTES = _gauge(
    "sidecar_ring_used_bytes",
    "Bytes of the ring in batches not yet given back.",
    "input",
)
SIDECAR_HEARTBEAT_AGE_SECONDS = _gauge(
    "sidecar_heartbeat_age_seconds", "Time since the dispatcher last answered.", "input"
)

DISPATCHER_WORKERS = _gauge("dispatcher_workers", "Workers alive, by state.", "state")
DISPATCHER_CONSUMERS = _gauge("dispatcher_consumers", "Consumers alive.", "job")
DISPATCHER_JOBS = _gauge("dispatcher_jobs", "Jobs registered.")
DISPATCHER_DATASETS = _gauge("dispatcher_datasets", "Traced datasets kept.")
DISPATCHER_DATASET_BYTES = _gauge("dispatcher_dataset_bytes", "Bytes of traced datasets kept.")
DISPATCHER_HEARTBEAT_AGE_SECONDS = _gauge(
    "dispatcher_heartbeat_age_seconds",
    "Age of the oldest heartbeat of those alive.",
    "kind",
)
DISPATCHER_WORKER_LOSSES = _counter(
    "dispatcher_worker_losses", "Workers whose heartbeats stopped without draining."
)
DISPATCHER_CONSUMER_LOSSES = _counter(
    "dispatcher_consumer_losses",
    "Consumers whose heartbeats stopped before they finished.",
    "job",
)
DISPATCHER_FENCED = _counter(
    "dispatcher_fenced", "Heartbeats of consumers that were fenced off.", "job"
)
DISPATCHER_FACT_CONFLICTS = _counter(
    "dispatcher_fact_conflicts",
    "Reports on a partition that contradicted earlier ones.",
    "job",
)


def definitions() -> tuple[Definition, ...]:
    """Every metric of this package, in the order of this file."""
    return tuple(value for value in globals().values() if isinstance(value, Definition))
