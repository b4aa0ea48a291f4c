"""`distributed-input status`: the status of a dispatcher as tables or as JSON."""

from __future__ import annotations

import os
from typing import Any

import click

from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, output
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, trainer_window

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
        samples = [(one, one.client.status(selection.timeout)) for one in found]
    values = [(one, as_json(sample), as_text(sample)) for one, sample in samples]
    print(dispatchers.printed(values, "json" if as_json_too else output), end="")
    return 0


def as_text(status: StatusSample) -> str:
    """Return two tables, consumers and workers, with lines about what needs attention."""
    rows: list[tuple[str, ...]] = [_CONSUMER_HEADER]
    rows += [_consumer_row(consumer) for consumer in status.consumers]
    text = formatting.table(rows, indent="") if status.consumers else "no trainer is connected\n"
    text += "".join(map(_differences, status.consumers))
    text += "".join(
        f"{job}: warning: {one}\n" for job, texts in status.warnings.items() for one in texts
    )
    text += "".join(
        f"{job}: rows are whole elements of the dataset, because no batch size is known\n"
        for job in status.whole
    )
    text += "".join(
        f"{job}: the shuffle buffers of an open split hold about {-(-size // (1 << 20)):,} MiB\n"
        for job, size in status.split_bytes.items()
        if size >= 1 << 20
    )
    if not status.workers:
        return text + "no worker is registered\n"
    header = ("worker", "streams", "rows", "busy", "")
    workers = [
        (
            worker.address,
            str(worker.streams),
            str(worker.rows),
            f"{worker.busy:.1f} s",
            "draining" if worker.draining else "",
        )
        for worker in status.workers
    ]
    stalled = [
        f"no progress: {one}, worker {worker.address}\n"
        for worker in status.workers
        for one in worker.stalled
    ]
    failures = [
        f"error: {worker.failure}, worker {worker.address}\n"
        for worker in status.workers
        if worker.failure
    ]
    table = formatting.table([header, *workers], indent="")
    return f"{text}\n{table}" + "".join([*stalled, *failures])


def _differences(consumer: ConsumerSample) -> str:
    """Return a line about the replays that made other rows; "" if there are none."""
    if not consumer.mismatches:
        return ""
    return (
        f"{consumer.name}: replays that made other rows than before: "
        f"{consumer.mismatches}. The dataset is not deterministic, or it has changed. The log of "
        "the trainer names the splits\n"
    )


_CONSUMER_HEADER = (
    "job/trainer",
    "epoch",
    "rows",
    "batches",
    "rows/s",
    "stall",
    "buffer",
    "waiting for",
)


def _consumer_row(consumer: ConsumerSample) -> tuple[str, ...]:
    since_start = trainer_window(StatusSample(), consumer)
    return (
        consumer.name,
        str(consumer.epoch),
        str(consumer.rows),
        str(consumer.batches),
        formatting.rate(since_start.rate),
        formatting.share(since_start.waits),
        formatting.share(consumer.buffer),
        "finished" if consumer.finished else consumer.waiting_for,
    )


def as_json(status: StatusSample) -> dict[str, Any]:
    """Return the status as JSON values. Times in seconds, shares from 0 to 1."""
    return {
        "jobs": list(status.jobs),
        "read_amplification": dict(status.amplification),
        "split_bytes": dict(status.split_bytes),
        "whole_elements": list(status.whole),
        "warnings": {job: list(texts) for job, texts in status.warnings.items()},
        "consumers": [
            {
                "job": one.job,
                "index": one.index,
                "epoch": one.epoch,
                "rows": one.rows,
                "batches": one.batches,
                "wait_seconds": one.wait,
                "iterating_seconds": one.wall,
                "buffer": one.buffer,
                "replay_mismatches": one.mismatches,
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
                "open_streams": one.streams,
                "rows": one.rows,
                "busy_seconds": one.busy,
                "cpus": one.parallelism,
                "draining": one.draining,
                "node": one.node,
                "stalled": list(one.stalled),
                "failure": one.failure or None,
            }
            for one in status.workers
        ],
    }
