"""`distributed-input top`: the rates of trainers and workers, again and again."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runner import dispatchers
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, WorkerSample
from distributed_input.runtime.args import EXIT_CONFIG, positive_count, positive_seconds

_CLEAR = "\033[H\033[2J"
_EXAMPLES = """\
examples:
  distributed-input top                  # the runs on this machine; Ctrl-C ends it
  distributed-input top digits -n team   # an input in the cluster of the kubeconfig
  distributed-input top --count 1        # once, for scripts

exit status: 0, 1 if a dispatcher does not respond, 2 if a flag is invalid or no run is found
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input top`."""
    flags = argparse.ArgumentParser(
        prog="distributed-input top",
        description="Show what trainers and workers did in the last seconds: rows per second, the "
        "share of time that trainers wait and that workers compute.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    dispatchers.add_flags(flags, output=False)
    flags.add_argument(
        "--seconds",
        type=positive_seconds,
        default=2.0,
        metavar="SECONDS",
        help="time between two tables; processes report once a second (default: 2)",
    )
    flags.add_argument(
        "--count",
        type=positive_count,
        metavar="N",
        help="number of tables (default: until Ctrl-C)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print tables until Ctrl-C; return the exit status."""
    options = parser().parse_args(argv)
    try:
        with dispatchers.opened(options, os.environ) as found:
            _watch(found, options)
    except DistributedInputError as error:
        print(f"distributed-input top: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    except KeyboardInterrupt:
        pass
    return 0


def _watch(found: Sequence[dispatchers.FoundDispatcher], options: argparse.Namespace) -> None:
    before = [one.client.status(options.timeout) for one in found]
    began, shown = time.monotonic(), 0
    while options.count is None or shown < options.count:
        time.sleep(options.seconds)
        after = [one.client.status(options.timeout) for one in found]
        now = time.monotonic()
        titles = [f"{one.name}:\n" if len(found) > 1 else "" for one in found]
        texts = [
            title + as_text(earlier, later, now - began)
            for title, earlier, later in zip(titles, before, after, strict=True)
        ]
        print(_CLEAR * sys.stdout.isatty() + "\n".join(texts), end="", flush=True)
        before, began, shown = after, now, shown + 1


def as_text(before: StatusSample, after: StatusSample, seconds: float) -> str:
    """Return two tables, trainers and workers, about the time between two samples."""
    trainers = {(one.job, one.index, one.incarnation): one for one in before.consumers}
    rows: list[tuple[str, ...]] = [
        ("job/trainer", "epoch", "rows/s", "stall", "buffer", "waiting for")
    ]
    rows += [
        _trainer_row(trainers.get((one.job, one.index, one.incarnation)), one)
        for one in after.consumers
    ]
    text = formatting.table(rows, indent="") if after.consumers else "no trainer is connected\n"
    workers = {one.worker_id: one for one in before.workers}
    shares: list[tuple[str, ...]] = [("worker", "streams", "rows/s", "busy")]
    shares += [_worker_row(workers.get(one.worker_id), one, seconds) for one in after.workers]
    table = formatting.table(shares, indent="") if after.workers else "no worker is registered\n"
    return f"{text}\n{table}"


def _trainer_row(before: ConsumerSample | None, after: ConsumerSample) -> tuple[str, ...]:
    """Return the cells of a trainer. Its own clock gives the time, because heartbeats vary."""
    same = before is not None and before.trainer == after.trainer
    wall = after.wall - (before.wall if before and same else 0.0)
    wait = after.wait - (before.wait if before and same else 0.0)
    rows = after.rows - (before.rows if before and same else 0)
    return (
        f"{after.job or '-'}/{after.index}",
        str(after.epoch),
        formatting.rate(rows / wall) if wall > 0 else "-",
        f"{wait / wall:.0%}" if wall > 0 else "-",
        f"{after.buffer:.0%}",
        "finished" if after.finished else after.waiting_for,
    )


def _worker_row(
    before: WorkerSample | None, after: WorkerSample, seconds: float
) -> tuple[str, ...]:
    """Return the cells of a worker. `busy` counts computing rows: above 100 % with several CPUs."""
    if before is None:
        return after.address, str(after.streams), "-", "-"
    return (
        after.address,
        str(after.streams),
        formatting.rate((after.rows - before.rows) / seconds),
        f"{(after.busy - before.busy) / seconds:.0%}",
    )
