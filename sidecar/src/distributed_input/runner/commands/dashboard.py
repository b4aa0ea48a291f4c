"""`distributed-input dashboard`: a page in the browser about running inputs."""

from __future__ import annotations

import contextlib
import functools
import os
import signal
import threading
from typing import Any

import click

from distributed_input.runner import dispatchers
from distributed_input.runner.command_line import command, seconds
from distributed_input.runner.commands import explain, status, top
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.dashboard.sampler import Sampler
from distributed_input.runner.dashboard.server import serving
from distributed_input.runner.dispatchers import Selection

_EXAMPLES = """\
examples:
  distributed-input dashboard                    # the runs on this machine; Ctrl-C ends it
  distributed-input dashboard digits -n team     # an input in the cluster of the kubeconfig
  ssh -t -L 8321:127.0.0.1:8321 HOST distributed-input dashboard   # on another machine

exit status: 0, or 2 if a flag is invalid
"""


@command(_EXAMPLES)
@dispatchers.flags
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=8321,
    help="Port on 127.0.0.1; 0 selects a free port.",
)
@seconds(2, "Time between two samples.")
def dashboard(selection: Selection, port: int, seconds: float) -> int:
    """Serve a page about inputs on this machine: what trainers wait for, the rate of each stage,
    buffers, workers and replays. It shows what `status`, `explain` and `top` print, and refreshes
    itself. Only browsers on this machine can open it. It can start before the run, and finds new
    runs.
    """
    dispatchers.check(selection)
    _end_on_signals()
    found = functools.partial(dispatchers.opened, selection, os.environ)
    # To find an input of a cluster again takes another kubectl port-forward.
    search = 300.0 if selection.name or selection.dispatcher else 30.0
    with (
        contextlib.suppress(KeyboardInterrupt),
        Sampler(found, view, seconds, selection.timeout, search) as sampler,
        serving(port, sampler.values) as url,
    ):
        print(f"dashboard: {url} (Ctrl-C ends it)", flush=True)
        threading.Event().wait()
    return 0


def view(history: InputHistory) -> dict[str, Any]:
    """Return what `status`, `top` and `explain` print as JSON about the last seconds."""
    before, after, seconds = history.window()
    return {
        "status": status.as_json(after),
        "rates": top.as_json(before, after, seconds),
        "trainers": [explain.as_json(one) for one in history.diagnoses()],
    }


def _end_on_signals() -> None:
    """End on SIGTERM and SIGHUP as on Ctrl-C. If ssh loses its terminal, it is SIGHUP."""
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:  # for example by nohup
            signal.signal(number, signal.default_int_handler)
