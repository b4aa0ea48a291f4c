"""`distributed-input status`: the status of a dispatcher as tables or as JSON."""

from __future__ import annotations

import os
from typing import Any

import click

from distributed_input.api.stalls import MAX_SHOWN, skipped_text, skipped_value
from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, output
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import (
    Consumer,
    StatusSample,
    consumer_name,
    dataset_failure,
    source_windows,
    stalled_splits,
    trainer_window,
)

_SHOWN = 5  # skipped records
_EXAMPLES = """\
examples:
  distributed-input status                  # of the runs on this machine
  distributed-input status digits -n team   # of an input in the cluster of the kubeconfig
  distributed-input status -o json | jq .workers
  distributed-input status --dispatcher train-dispatcher:7070 --token-file /var/run/token

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""


@command(_EXAMPLES)
@dispatchers.flags
@output("one JSON object for each input")
@click.option("--json", "as_json_too", is_flag=True, help="-o json")
def status(selection: Selection, output: str, as_json_too: bool) -> int:
    """Show the trainers and workers of inputs. `distributed-input explain` names what they wait
    for.
    """
    with dispatchers.opened(selection, os.environ) as found:
        samples = [
            (one, one.client.status(selection.timeout, max_skipped=MAX_SHOWN)) for one in found
        ]
    values = [(one, as_json(sample), as_text(sample)) for one, sample in samples]
    print(dispatchers.printed(values, "json" if as_json_too else output), end="")
    return 0


def as_text(status: StatusSample) -> str:
    """Return two tables, consumers and workers, with lines about what needs attention."""
    rows: list[tuple[str, ...]] = [_HEADER]
    rows += [_consumer_row(consumer) for consumer in status.consumers]
    text = formatting.table(rows, indent="", empty="no trainer is connected") + _sources(status)
    text += "".join(map(_differences, status.consumers))
    for job in status.jobs:
        text += "".join(f"{job.name}: warning: {one}\n" for one in job.warnings)
        if not job.global_batch_size:
            text += (
                f"{job.name}: rows are whole elements of the dataset, because no batch size is "
                "known\n"
            )
        if job.split_bytes >= 1 << 20:
            size = -(-job.split_bytes // (1 << 20))
            text += f"{job.name}: the shuffle buffers of an open split hold about {size:,} MiB\n"
    header = ("worker", "streams", "rows", "busy", "")
    workers = [
        (
            worker.address,
            str(worker.open_streams),
            str(worker.rows),
            f"{worker.busy_seconds:.1f} s",
            "draining" if worker.draining else "",
        )
        for worker in status.workers
    ]
    stalled = [
        f"no progress: {one}, worker {worker.address}\n"
        for worker in status.workers
        for one in stalled_splits(worker)
    ]
    failures = [
        f"error: {failure}, worker {worker.address}\n"
        for worker in status.workers
        if (failure := dataset_failure(worker))
    ]
    table = formatting.table([header, *workers], indent="", empty="no worker is registered")
    return f"{text}\n{table}" + "".join([*stalled, *failures]) + _skipped(status)


def _sources(status: StatusSample) -> str:
    """Return a table of the sources of mixtures; "" if there are none."""
    lines = [("job/source", "rows", "share", "waited for")]
    for job, sources in source_windows(StatusSample(), status).items():
        total = max(1, sum(one.rows for one in sources))
        lines += [
            (
                f"{job}/{one.source}",
                str(one.rows),
                formatting.share(one.rows / total),
                f"{one.wait_seconds:.1f} s",
            )
            for one in sources
        ]
    return "\n" + formatting.table(lines, indent="", empty="") if len(lines) > 1 else ""


def _skipped(status: StatusSample) -> str:
    """Return lines about the records that splits left out; "" if there are none."""
    if not status.skipped_records:
        return ""
    lines = [f"skipped: {skipped_text(one)}\n" for one in status.skipped[-_SHOWN:]]
    count = f"records skipped (spec.badRecords): {status.skipped_records}"
    return f"{count}; `distributed-input rows --skipped` lists them\n{''.join(lines)}"


def _differences(consumer: Consumer) -> str:
    """Return a line about the replays that made other rows; "" if there are none."""
    if not consumer.replay_mismatches:
        return ""
    return (
        f"{consumer_name(consumer)}: replays that made other rows than before: "
        f"{consumer.replay_mismatches}. The dataset is not deterministic, or it has changed. The "
        "log of the trainer names the splits\n"
    )


_HEADER = ("job/trainer", "epoch", "rows", "batches", "rows/s", "stall", "buffer", "waiting for")


def _consumer_row(consumer: Consumer) -> tuple[str, ...]:
    since_start = trainer_window(StatusSample(), consumer)
    return (
        consumer_name(consumer),
        str(consumer.epoch),
        str(consumer.rows),
        str(consumer.batches),
        formatting.rate(since_start.rate),
        formatting.share(since_start.waits),
        formatting.share(consumer.buffer_fill),
        "finished" if consumer.finished else consumer.waiting_for,
    )


def as_json(status: StatusSample) -> dict[str, Any]:
    """Return the status as JSON values. Times in seconds, shares from 0 to 1."""
    jobs = status.jobs
    return {
        "jobs": [job.name for job in jobs],
        "read_amplification": {
            job.name: job.read_amplification for job in jobs if job.read_amplification > 1
        },
        "split_bytes": {job.name: job.split_bytes for job in jobs if job.split_bytes},
        "whole_elements": status.whole,
        "skipped_records": status.skipped_records,
        "skipped": [skipped_value(one) for one in status.skipped],
        "warnings": {job.name: list(job.warnings) for job in jobs if job.warnings},
        "sources": {
            job: [one._asdict() for one in sources]
            for job, sources in source_windows(StatusSample(), status).items()
        },
        "consumers": [
            {
                "job": one.job,
                "index": one.index,
                "epoch": one.epoch,
                "rows": one.rows,
                "batches": one.batches,
                "wait_seconds": one.wait_seconds,
                "iterating_seconds": one.wall_seconds,
                "buffer": one.buffer_fill,
                "replay_mismatches": one.replay_mismatches,
                "useful_workers": one.useful_workers,
                "finished": one.finished,
                "waiting_for": one.waiting_for or None,
            }
            for one in status.consumers
        ],
        "workers": [
            {
                "id": one.worker_id,
                "address": one.address,
                "open_streams": one.open_streams,
                "rows": one.rows,
                "busy_seconds": one.busy_seconds,
                "cpus": one.parallelism,
                "draining": one.draining,
                "node": one.node,
                "stalled": stalled_splits(one),
                "failure": dataset_failure(one) or None,
            }
            for one in status.workers
        ],
    }
