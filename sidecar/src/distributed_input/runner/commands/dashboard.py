"""`distributed-input dashboard`: a page in the browser about running inputs."""

from __future__ import annotations

import argparse
import contextlib
import functools
import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import Any

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runner import dispatchers
from distributed_input.runner.commands import explain, status, top
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.dashboard.sampler import Sampler
from distributed_input.runner.dashboard.server import serving
from distributed_input.runner.display.stats import StatusSample, WorkerSample
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_seconds

_DESCRIPTION = """\
Serve a page about inputs on this machine: what trainers wait for, the rate of each stage, buffers,
workers and replays. It shows what `status`, `explain` and `top` print, and refreshes itself. Only
browsers on this machine can open it. It can start before the run, and finds new runs.
"""
_EXAMPLES = """\
examples:
  distributed-input dashboard                    # the runs on this machine; Ctrl-C ends it
  distributed-input dashboard digits -n team     # an input in the cluster of the kubeconfig
  ssh -t -L 8321:127.0.0.1:8321 HOST distributed-input dashboard   # on another machine

exit status: 0, or 2 if a flag is invalid
"""
_PORT = 8321
_ENDING_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input dashboard`."""
    flags = CommandParser(
        prog="distributed-input dashboard",
        description=_DESCRIPTION,
        epilog=_EXAMPLES,
    )
    dispatchers.add_flags(flags, output=False)
    flags.add_argument(
        "--port",
        type=_port,
        default=_PORT,
        help=f"port on 127.0.0.1; 0 selects a free port (default: {_PORT})",
    )
    flags.add_argument(
        "--seconds",
        type=positive_seconds,
        default=2.0,
        metavar="SECONDS",
        help="time between two samples (default: 2)",
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Serve the page until Ctrl-C; return the exit status."""
    options = parser().parse_args(argv)
    try:
        dispatchers.check(options)
        found = functools.partial(dispatchers.opened, options, os.environ)
        local = not (options.name or options.dispatcher)
        with (
            _ended_by_signals(),
            Sampler(found, view, options.seconds, options.timeout, new_runs=local) as sampler,
            serving(options.port, sampler.values) as url,
        ):
            print(f"dashboard: {url} (Ctrl-C ends it)", flush=True)
            threading.Event().wait()
    except KeyboardInterrupt:
        return 0
    except DistributedInputError as error:
        print(f"distributed-input dashboard: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    return 0


def view(history: InputHistory) -> dict[str, Any]:
    """Return what `status`, `top` and `explain` print as JSON about the last seconds."""
    before, after, seconds = history.window()
    return {
        "status": status.as_json(after),
        "rates": top.as_json(before, after, seconds),
        "busy": _busy(before, after),
        "trainers": [explain.as_json(one) for one in history.diagnoses()],
    }


@contextlib.contextmanager
def _ended_by_signals() -> Iterator[None]:
    """End the block on SIGTERM and SIGHUP as on Ctrl-C. If ssh loses its terminal, it is SIGHUP."""
    # Signals that are ignored, for example by nohup, stay ignored.
    former = {number: signal.getsignal(number) for number in _ENDING_SIGNALS}
    caught = [number for number, one in former.items() if one is not signal.SIG_IGN]
    for number in caught:
        signal.signal(number, signal.default_int_handler)
    try:
        yield
    finally:
        for number in caught:
            signal.signal(number, former[number])


def _busy(before: StatusSample, after: StatusSample) -> dict[str, float]:
    """Return the share of its CPUs that each worker used, 0 to 1, by its id."""
    then = {one.worker_id: one for one in before.workers}
    found = {}
    for one in after.workers:
        earlier = then.get(one.worker_id, WorkerSample(one.worker_id, one.address))
        permits = one.permit_seconds - earlier.permit_seconds
        if permits > 0:
            found[one.worker_id] = min(1.0, (one.busy - earlier.busy) / permits)
    return found


def _port(text: str) -> int:
    if not text.isdecimal() or int(text) > 65535:
        raise argparse.ArgumentTypeError(f"{text!r} is not a port: use 0 to 65535")
    return int(text)
