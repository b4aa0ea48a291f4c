"""`distributed-input status`: what a dispatcher knows, as a table or as JSON."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runner.display import display
from distributed_input.runner.display.asking import Dispatcher
from distributed_input.runner.display.stats import Consumer, Status
from distributed_input.runtime import addresses
from distributed_input.runtime.args import EXIT_CONFIG, positive_seconds
from distributed_input.runtime.credentials import Credentials

_EXAMPLES = """\
examples:
  distributed-input status --dispatcher train-dispatcher:7070 --token-file /var/run/token
  distributed-input status --dispatcher 127.0.0.1:43117 --token-file t --json | jq .workers

exit status: 0, 1 where the dispatcher does not answer, 2 where a flag does not fit
"""


def parser() -> argparse.ArgumentParser:
    """The flags of `distributed-input status`."""
    made = argparse.ArgumentParser(
        prog="distributed-input status",
        description="Show the trainers and the workers of one input, as its dispatcher sees them.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    made.add_argument("--dispatcher", required=True, metavar="HOST:PORT")
    made.add_argument(
        "--token-file", help="the input's token (default: the variable DISTRIBUTED_INPUT_TOKEN)"
    )
    made.add_argument("--json", action="store_true", help="the same as one JSON object")
    made.add_argument(
        "--timeout", type=positive_seconds, default=5.0, metavar="SECONDS", help="default: 5"
    )
    return made


def main(argv: Sequence[str]) -> int:
    """Ask and print; the exit status."""
    options = parser().parse_args(argv)
    try:
        addresses.parse(options.dispatcher, "--dispatcher")
        credentials = Credentials.from_args(options.token_file, os.environ)
        dispatcher = Dispatcher(options.dispatcher, credentials)
        try:
            status = dispatcher.status(options.timeout)
        finally:
            dispatcher.close()
    except DistributedInputError as error:
        print(f"distributed-input status: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    sys.stdout.write(json.dumps(as_json(status)) + "\n" if options.json else as_text(status))
    return 0


def as_text(status: Status) -> str:
    """Two small tables: consumers, then workers."""
    rows: list[tuple[str, ...]] = [_CONSUMER_HEADS]
    rows += [_consumer_row(consumer) for consumer in status.consumers]
    text = display.table(rows, indent="") if status.consumers else "no trainer has connected\n"
    if not status.workers:
        return text + "no worker has registered\n"
    heads = ("worker", "streams", "rows", "busy", "")
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
    return text + "\n" + display.table([heads, *workers], indent="")


_CONSUMER_HEADS = (
    "job/trainer",
    "epoch",
    "rows",
    "batches",
    "rows/s",
    "stall",
    "buffer",
    "waits for",
)


def _consumer_row(consumer: Consumer) -> tuple[str, ...]:
    running = consumer.wall > 0
    return (
        f"{consumer.job or '-'}/{consumer.index}",
        str(consumer.epoch),
        str(consumer.rows),
        str(consumer.batches),
        display.rate(consumer.rows / consumer.wall) if running else "-",
        f"{consumer.wait / consumer.wall:.0%}" if running else "-",
        f"{consumer.buffer:.0%}",
        "finished" if consumer.finished else consumer.waiting_for,
    )


def as_json(status: Status) -> dict[str, Any]:
    """The same as plain values; times in seconds, shares from 0 to 1."""
    return {
        "jobs": list(status.jobs),
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
                "draining": one.draining,
                "node": one.node,
            }
            for one in status.workers
        ],
    }
