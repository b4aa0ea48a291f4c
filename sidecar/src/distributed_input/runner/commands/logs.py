"""`distributed-input logs`: the logs of an input's processes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence

import click

from distributed_input.api import names
from distributed_input.api.errors import ConfigError
from distributed_input.runner import dispatchers, folders, kubectl, process_logs
from distributed_input.runner.command_line import COUNT, argument, command, namespace
from distributed_input.runner.folders import RunFolders

_KUBECTL_SECONDS = 10.0
_EXAMPLES = """\
examples:
  distributed-input logs                       # the runs on this machine
  distributed-input logs digits -n team        # dispatcher and workers of an input in the cluster
  distributed-input logs digits --part sidecar --follow

exit status: 0, that of kubectl, 1 if the cluster does not respond, or 2 if a flag is invalid or no
run or input is found
"""


@command(_EXAMPLES)
@argument(
    "name",
    required=False,
    help="Name of an input of a run on this machine, or else in the cluster of the kubeconfig, "
    "with kubectl. Default: all runs on this machine.",
)
@namespace("Namespace of NAME in the cluster.")
@click.option(
    "--part",
    type=click.Choice(["dispatcher", "worker", "sidecar"]),
    help="Only these processes. Default: all; in a cluster, dispatcher and workers.",
)
@click.option("--tail", type=COUNT, default=20, metavar="LINES", help="Last lines of each process.")
@click.option("-f", "--follow", is_flag=True, help="Print new lines too; only in a cluster.")
def logs(name: str | None, namespace: str | None, part: str | None, tail: int, follow: bool) -> int:
    """Print the logs of the processes of an input, each line with its process."""
    runs = [] if namespace else dispatchers.local_runs(os.environ, name)
    if name and not runs:
        # For a selector without pods, kubectl ends with status 0.
        kubectl.get_input(name, namespace, _KUBECTL_SECONDS)
        command = kubectl_command(name, namespace, part, tail, follow)
        return subprocess.run(command, check=False).returncode
    if namespace or follow:
        raise ConfigError("--namespace and --follow: set NAME too, of an input in a cluster")
    if not runs:
        base = folders.default_parent(os.environ)
        raise ConfigError(f"no run is below {base}: start `distributed-input run`, or set NAME")
    for line in _of_local_runs(runs, part, tail):
        print(line)
    return 0


def kubectl_command(
    name: str, namespace: str | None, part: str | None, tail: int, follow: bool
) -> list[str]:
    """Return the command that prints the last lines of each container of an input's pods."""
    command = ["kubectl", "logs", *(["--namespace", namespace] if namespace else [])]
    if part == "sidecar":
        command += ["--selector", f"{names.reads_label(name)}=true"]
        command += ["--container", names.SIDECAR_CONTAINER]
    else:
        component = f",{names.COMPONENT_LABEL}={part}" if part else ""
        command += ["--selector", f"{names.INPUT_LABEL}={name}{component}", "--all-containers"]
    command += ["--prefix", "--tail", str(tail), "--max-log-requests", "100"]
    return [*command, "--follow"] if follow else command


def _of_local_runs(runs: Sequence[RunFolders], part: str | None, lines: int) -> Iterator[str]:
    for run in runs:
        if len(runs) > 1:
            yield f"{run.place}:"
        for log in sorted(run.logs.glob("*.log")):
            if part is None or part in log.stem.split("-"):
                for line in process_logs.tail(log, lines):
                    yield f"[{log.stem}] {line}"
