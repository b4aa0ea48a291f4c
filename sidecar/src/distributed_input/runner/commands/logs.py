"""`distributed-input logs`: the logs of an input's processes."""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from distributed_input.api import names
from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runner import dispatchers, folders, kubectl, process_logs
from distributed_input.runtime.args import EXIT_CONFIG, CommandParser, positive_count

_KUBECTL_SECONDS = 10.0
_PARTS = ("dispatcher", "worker", "sidecar")
_EXAMPLES = """\
examples:
  distributed-input logs                       # the runs on this machine
  distributed-input logs digits -n team        # dispatcher and workers of an input in the cluster
  distributed-input logs digits --part sidecar --follow

exit status: 0, that of kubectl, 1 if the cluster does not respond, or 2 if a flag is invalid or no
run or input is found
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input logs`."""
    flags = CommandParser(
        prog="distributed-input logs",
        description="Print the logs of the processes of an input, each line with its process.",
        epilog=_EXAMPLES,
    )
    flags.add_argument(
        "name",
        nargs="?",
        metavar="NAME",
        help="name of an input of a run on this machine, or else in the cluster of the kubeconfig, "
        "with kubectl (default: all runs on this machine)",
    )
    flags.add_argument(
        "-n",
        "--namespace",
        metavar="NAMESPACE",
        help="namespace of NAME in the cluster (default: that of the kubeconfig's context)",
    )
    flags.add_argument(
        "--part",
        choices=_PARTS,
        help="only these processes (default: all; in a cluster, dispatcher and workers)",
    )
    flags.add_argument(
        "--tail",
        type=positive_count,
        default=20,
        metavar="LINES",
        help="last lines of each process (default: 20)",
    )
    flags.add_argument(
        "-f", "--follow", action="store_true", help="print new lines too; only in a cluster"
    )
    return flags


def main(argv: Sequence[str]) -> int:
    """Print the logs; return the exit status."""
    options = parser().parse_args(argv)
    try:
        runs = [] if options.namespace else dispatchers.local_runs(os.environ, options.name)
        if options.name and not runs:
            return _in_cluster(options)
        if options.namespace or options.follow:
            raise ConfigError("--namespace and --follow: set NAME too, of an input in a cluster")
        if not runs:
            base = folders.default_parent(os.environ)
            raise ConfigError(f"no run is below {base}: start `distributed-input run`, or set NAME")
        for line in _of_local_runs(runs, options.part, options.tail):
            print(line)
    except DistributedInputError as error:
        print(f"distributed-input logs: {error}", file=sys.stderr)
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
    return 0


def _in_cluster(options: argparse.Namespace) -> int:
    # For a selector without pods, kubectl ends with status 0.
    kubectl.check_exists(options.name, options.namespace, _KUBECTL_SECONDS)
    command = kubectl_command(
        options.name, options.namespace, options.part, options.tail, options.follow
    )
    return subprocess.run(command, check=False).returncode


def kubectl_command(
    name: str, namespace: str | None, part: str | None, tail: int, follow: bool
) -> list[str]:
    """Return the command that prints the logs of an input's pods.

    Args:
        name: name of the input.
        namespace: its namespace. None: that of the kubeconfig's context.
        part: dispatcher, worker or sidecar. None: dispatcher and workers.
        tail: last lines of each container.
        follow: print new lines too.
    """
    command = ["kubectl", "logs", *(["--namespace", namespace] if namespace else [])]
    if part == "sidecar":
        command += ["--selector", f"{names.reads_label(name)}=true"]
        command += ["--container", names.SIDECAR_CONTAINER]
    else:
        component = f",{names.COMPONENT_LABEL}={part}" if part else ""
        command += ["--selector", f"{names.INPUT_LABEL}={name}{component}", "--all-containers"]
    command += ["--prefix", "--tail", str(tail), "--max-log-requests", "100"]
    return [*command, "--follow"] if follow else command


def _of_local_runs(runs: Sequence[Path], part: str | None, lines: int) -> Iterator[str]:
    for run in runs:
        if len(runs) > 1:
            yield f"{folders.place(run)}:"
        for log in sorted((run / "logs").glob("*.log")):
            if part is None or part in log.stem.split("-"):
                for line in process_logs.tail(log, lines):
                    yield f"[{log.stem}] {line}"
