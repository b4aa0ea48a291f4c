"""`distributed-input top`: the rates of trainers and workers, again and again."""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Any

import click

from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import COUNT, POSITIVE_SECONDS, command, output
from distributed_input.runner.dispatchers import FoundDispatcher, Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, WorkerSample

_CLEAR = "\033[H\033[2J"
_EXAMPLES = """\
examples:
  distributed-input top                  # the runs on this machine; Ctrl-C ends it
  distributed-input top digits -n team   # an input in the cluster of the kubeconfig
  distributed-input top --count 1 -o json | jq .workers   # once, for scripts

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""


@command(_EXAMPLES)
@dispatchers.flags
@output("one JSON object for each input")
@click.option(
    "--seconds",
    type=POSITIVE_SECONDS,
    default=2,
    help="Time between two tables; processes report once a second.",
)
@click.option("--count", type=COUNT, help="Number of tables. Default: until Ctrl-C.")
def top(selection: Selection, output: str, seconds: float, count: int | None) -> int:
    """Show what trainers and workers did in the last seconds: rows per second, the share of time
    that trainers wait and that workers compute.
    """
    with contextlib.suppress(KeyboardInterrupt), dispatchers.opened(selection, os.environ) as found:
        before = [one.client.status(selection.timeout) for one in found]
        began, shown = time.monotonic(), 0
        while count is None or shown < count:
            time.sleep(seconds)
            after = [one.client.status(selection.timeout) for one in found]
            now = time.monotonic()
            samples = list(zip(found, before, after, strict=True))
            print(_output(samples, now - began, output), end="", flush=True)
            before, began, shown = after, now, shown + 1
    return 0


def _output(
    samples: Sequence[tuple[FoundDispatcher, StatusSample, StatusSample]],
    seconds: float,
    output: str,
) -> str:
    """Return what one interval prints. `samples`: the earlier and later sample of each input."""
    if output == "json":
        values = [{**one.as_json(), **as_json(then, now, seconds)} for one, then, now in samples]
        return "".join(f"{json.dumps(value)}\n" for value in values)
    texts = [
        f"{one.title}:\n" * (len(samples) > 1) + as_text(before, after, seconds)
        for one, before, after in samples
    ]
    return _CLEAR * sys.stdout.isatty() + "\n".join(texts)


def as_text(before: StatusSample, after: StatusSample, seconds: float) -> str:
    """Return two tables, trainers and workers, about the time between two samples."""
    rates = as_json(before, after, seconds)
    trainers: list[tuple[str, ...]] = [
        ("job/trainer", "epoch", "rows/s", "stall", "buffer", "waiting for")
    ]
    trainers += [
        (
            f"{one['job'] or '-'}/{one['index']}",
            str(one["epoch"]),
            _rate(one["rows_per_second"]),
            _share(one["waits"]),
            _share(one["buffer"]),
            "finished" if one["finished"] else one["waiting_for"] or "",
        )
        for one in rates["consumers"]
    ]
    text = formatting.table(trainers, indent="") if after.consumers else "no trainer is connected\n"
    workers: list[tuple[str, ...]] = [("worker", "streams", "rows/s", "CPUs busy")]
    workers += [
        (
            one["address"],
            str(one["open_streams"]),
            _rate(one["rows_per_second"]),
            _share(one["busy_share"]),
        )
        for one in rates["workers"]
    ]
    table = formatting.table(workers, indent="") if after.workers else "no worker is registered\n"
    return f"{text}\n{table}"


def _rate(value: float | None) -> str:
    return "-" if value is None else formatting.rate(value)


def _share(value: float | None) -> str:
    return "-" if value is None else f"{value:.0%}"


def as_json(before: StatusSample, after: StatusSample, seconds: float) -> dict[str, Any]:
    """Return the rates between two samples as JSON values. Shares are from 0 to 1.

    `busy` of a worker is a number of CPUs, and `busy_share` is its part of the CPUs that the worker
    may use. None: the earlier sample does not have the process.
    """
    trainers = {(one.job, one.index, one.incarnation): one for one in before.consumers}
    workers = {one.worker_id: one for one in before.workers}
    return {
        "seconds": seconds,
        "consumers": [
            _trainer(trainers.get((one.job, one.index, one.incarnation)), one)
            for one in after.consumers
        ],
        "workers": [_worker(workers.get(one.worker_id), one, seconds) for one in after.workers],
    }


def _trainer(before: ConsumerSample | None, after: ConsumerSample) -> dict[str, Any]:
    """Return the values of a trainer. Its own clock gives the time, because heartbeats vary."""
    same = before is not None and before.trainer == after.trainer
    wall = after.wall - (before.wall if before and same else 0.0)
    wait = after.wait - (before.wait if before and same else 0.0)
    rows = after.rows - (before.rows if before and same else 0)
    return {
        "job": after.job,
        "index": after.index,
        "epoch": after.epoch,
        "rows_per_second": rows / wall if wall > 0 else None,
        "waits": wait / wall if wall > 0 else None,
        "buffer": after.buffer,
        "finished": after.finished,
        "waiting_for": after.waiting_for or None,
    }


def _worker(before: WorkerSample | None, after: WorkerSample, seconds: float) -> dict[str, Any]:
    """Return the values of a worker. Its own clock gives the share, because heartbeats vary."""
    busy = after.busy - before.busy if before else None
    permits = after.permit_seconds - before.permit_seconds if before else 0.0
    return {
        "id": after.worker_id,
        "address": after.address,
        "open_streams": after.streams,
        "rows_per_second": (after.rows - before.rows) / seconds if before else None,
        "busy": busy / seconds if busy is not None else None,
        "busy_share": min(1.0, busy / permits) if busy is not None and permits > 0 else None,
    }
