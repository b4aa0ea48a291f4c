"""`distributed-input`: one command for people, and for the pods' containers.

Subcommands' modules are imported when they are called: `version` needs no gRPC, and only
`worker` needs TensorFlow.
"""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Callable, Sequence

_COMMANDS = {
    "run": (
        "distributed_input.runner.commands.run",
        "an input pipeline and a trainer on this machine",
    ),
    "status": ("distributed_input.runner.commands.status", "what a dispatcher knows"),
    "dispatcher": ("distributed_input.dispatcher.main", "knows the workers and trainers"),
    "worker": ("distributed_input.worker.main", "runs the input pipeline (needs TensorFlow)"),
    "sidecar": ("distributed_input.sidecar.main", "fetches one trainer's share"),
}

_PLUGINS = {
    "inject": ("distributed-input-operator", "add the sidecar to pods in YAML files"),
}
"""Commands of other distributions, by entry point in the group `distributed_input.commands`."""

_EXAMPLES = """\
examples:
  distributed-input run input.yaml -- python train.py      # start here
  distributed-input run --help                             # each command explains itself
  distributed-input status --dispatcher HOST:PORT --token-file FILE

`dispatcher`, `worker` and `sidecar` are what the pods run; on one machine `run` starts them.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; its exit status."""
    given = list(sys.argv[1:] if argv is None else argv)
    # Only the subcommand: what follows is its own business.
    options = _parser().parse_args(given[:1])
    return _version() if options.command == "version" else _entry(options.command)(given[1:])


def _entry(command: str) -> Callable[[Sequence[str]], int]:
    if command in _PLUGINS:
        return _plugin(command)
    module, _ = _COMMANDS[command]
    entry: Callable[[Sequence[str]], int] = importlib.import_module(module).main
    return entry


def _plugin(command: str) -> Callable[[Sequence[str]], int]:
    from importlib import metadata

    for found in metadata.entry_points(group="distributed_input.commands", name=command):
        entry: Callable[[Sequence[str]], int] = found.load()
        return entry
    distribution, _ = _PLUGINS[command]
    sys.exit(f"distributed-input {command}: not installed. Run: pip install {distribution}")


def _version() -> int:
    from importlib import metadata

    try:
        print(f"distributed-input {metadata.version('distributed-input')}")
    except metadata.PackageNotFoundError:
        print("distributed-input (not installed: run from its sources)")
    return 0


def _parser() -> argparse.ArgumentParser:
    made = argparse.ArgumentParser(
        prog="distributed-input",
        description="Kubernetes-run input pipelines for accelerators.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    commands = made.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (_, what) in {**_COMMANDS, **_PLUGINS}.items():
        commands.add_parser(name, help=what, add_help=False)
    commands.add_parser("version", help="prints the version", add_help=False)
    return made


if __name__ == "__main__":
    sys.exit(main())
