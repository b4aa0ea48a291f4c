"""`distributed-input top`: the rates of trainers and workers, again and again."""

from __future__ import annotations

import contextlib
import itertools
import os
import sys
from collections.abc import Mapping
from typing import Any

import click

from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import COUNT, command, output, seconds
from distributed_input.runner.dispatchers import Selection
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import (
    Consumer,
    StatusSample,
    TrainerWindow,
    Worker,
    trainer_window,
)

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
@seconds(2, "Time between two tables; processes report once a second.")
@click.option("--count", type=COUNT, help="Number of tables. Default: until Ctrl-C.")
def top(selection: Selection, output: str, seconds: float, count: int | None) -> int:
    """Show what trainers and workers did in the last seconds: rows per second, the share of time
    that trainers wait and that workers compute.
    """
    with contextlib.suppress(KeyboardInterrupt), dispatchers.opened(selection, os.environ) as found:
        intervals = dispatchers.intervals(found, selection.timeout, seconds)
        for interval, samples in itertools.islice(intervals, count):
            rates = [(one, as_json(before, after, interval)) for one, before, after in samples]
            values = [(one, rate, as_text(rate)) for one, rate in rates]
            clear = _CLEAR * (output == "text" and sys.stdout.isatty())
            print(clear + dispatchers.printed(values, output), end="", flush=True)
    return 0


def as_text(rates: Mapping[str, Any]) -> str:
    """Return two tables, trainers and workers, with the values of `as_json`."""
    trainers: list[tuple[str, ...]] = [
        ("job/trainer", "epoch", "rows/s", "stall", "buffer", "waiting for")
    ]
    trainers += [
        (
            f"{one['job'] or '-'}/{one['index']}",
            str(one["epoch"]),
            formatting.rate(one["rows_per_second"]),
            formatting.share(one["waits"]),
            formatting.share(one["buffer"]),
            "finished" if one["finished"] else one["waiting_for"] or "",
        )
        for one in rates["consumers"]
    ]
    text = formatting.table(trainers, indent="", empty="no trainer is connected")
    workers: list[tuple[str, ...]] = [("worker", "streams", "rows/s", "CPUs busy")]
    workers += [
        (
            one["address"],
            str(one["open_streams"]),
            formatting.rate(one["rows_per_second"]),
            formatting.share(one["busy_share"]),
        )
        for one in rates["workers"]
    ]
    return f"{text}\n{formatting.table(workers, indent='', empty='no worker is registered')}"


def as_json(before: StatusSample, after: StatusSample, seconds: float) -> dict[str, Any]:
    """Return the rates between two samples as JSON values. Shares are from 0 to 1.

    `busy` of a worker is a number of CPUs, and `busy_share` is its part of the CPUs that the worker
    may use. None: the earlier sample does not have the process.
    """
    workers = {one.worker_id: one for one in before.workers}
    return {
        "seconds": seconds,
        "consumers": [_trainer(trainer_window(before, one), one) for one in after.consumers],
        "workers": [_worker(workers.get(one.worker_id), one, seconds) for one in after.workers],
    }


def _trainer(window: TrainerWindow, after: Consumer) -> dict[str, Any]:
    return {
        "job": after.job,
        "index": after.index,
        "epoch": after.epoch,
        "rows_per_second": window.rate,
        "waits": window.waits,
        "buffer": after.buffer_fill,
        "finished": after.finished,
        "waiting_for": after.waiting_for or None,
    }


def _worker(before: Worker | None, after: Worker, seconds: float) -> dict[str, Any]:
    """Return the values of a worker. Its own clock gives the share, because heartbeats vary."""
    busy = after.busy_seconds - before.busy_seconds if before else None
    permits = after.permit_seconds - before.permit_seconds if before else 0.0
    return {
        "id": after.worker_id,
        "address": after.address,
        "open_streams": after.open_streams,
        "rows_per_second": (after.rows - before.rows) / seconds if before else None,
        "busy": busy / seconds if busy is not None else None,
        "busy_share": min(1.0, busy / permits) if busy is not None and permits > 0 else None,
    }
