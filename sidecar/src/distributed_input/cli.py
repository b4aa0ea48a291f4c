"""The command `distributed-input`, for users and for the containers of pods.

Each subcommand's module is imported when it is called: `version` needs no gRPC, and only `worker`
needs TensorFlow.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import io
import os
import sys
from collections.abc import Callable, Sequence

_COMMANDS = {
    "init": (
        "distributed_input.runner.commands.init",
        "write a small project: input.yaml, dataset.py and train.py",
    ),
    "run": (
        "distributed_input.runner.commands.run",
        "run an input pipeline and a trainer on this machine",
    ),
    "validate": (
        "distributed_input.runner.commands.validate",
        "check the YAML of an input, and import its entry point",
    ),
    "bench": (
        "distributed_input.runner.commands.bench",
        "measure what workers would gain for your dataset",
    ),
    "status": (
        "distributed_input.runner.commands.status",
        "show the trainers and workers of running inputs",
    ),
    "explain": (
        "distributed_input.runner.commands.explain",
        "name what the trainers of running inputs wait for",
    ),
    "top": (
        "distributed_input.runner.commands.top",
        "show the rates of trainers and workers, again and again",
    ),
    "dashboard": (
        "distributed_input.runner.commands.dashboard",
        "serve a page about running inputs, for a browser on this machine",
    ),
    "logs": (
        "distributed_input.runner.commands.logs",
        "print the logs of an input's processes",
    ),
    "doctor": (
        "distributed_input.runner.commands.doctor",
        "check the installation: this machine, Python packages, the cluster",
    ),
    "completion": (
        "distributed_input.runner.commands.completion",
        "print a script that completes commands in a shell",
    ),
    "dispatcher": (
        "distributed_input.dispatcher.main",
        "start a dispatcher: the registry of workers, trainers and jobs",
    ),
    "worker": (
        "distributed_input.worker.main",
        "start a worker: it runs the input pipeline (needs TensorFlow)",
    ),
    "sidecar": (
        "distributed_input.sidecar.main",
        "start a sidecar: it fetches one trainer's share of the rows",
    ),
}

_PLUGINS = {
    "inject": ("distributed-input-operator", "add the sidecar to pods in YAML files"),
}
"""Commands of other distributions. Entry points in the group `distributed_input.commands`."""

_HANDLE_SIGNALS = ("run", "dispatcher", "worker", "sidecar")
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141
"""128 and the number of the signal, as shells report it."""

_EXAMPLES = """\
examples:
  distributed-input init photos                            # start here
  distributed-input run input.yaml -- python train.py
  distributed-input run --help                             # flags of one command
  distributed-input validate input.yaml --trainers 4
  distributed-input bench input.yaml                       # what would workers gain?
  distributed-input explain                                # why does my trainer wait?

`kubectl dinput COMMAND` is the same, for example `kubectl dinput explain digits -n team`.
Pods run `dispatcher`, `worker` and `sidecar`. On one machine, `run` starts them.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may be none in the locale's encoding
            stream.reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    _check_command(arguments[:1])
    # Parse only the subcommand. Its own parser handles the rest.
    options = _parser().parse_args(arguments[:1])
    if options.command == "help":
        # `help top` is `top --help`.
        return main([arguments[1], "--help"]) if arguments[1:] else _help()
    if options.version or options.command == "version":
        return _version()
    if options.command is None:
        _parser().error("a COMMAND is needed: see `distributed-input --help`")
    if options.command in _HANDLE_SIGNALS:
        return _entry(options.command)(arguments[1:])
    return _interruptible(options.command, arguments[1:])


def _check_command(first: Sequence[str]) -> None:
    """Exit with a message if the first argument is neither a flag nor a command."""
    for word in first:
        known = [*_COMMANDS, *_PLUGINS, "version", "help"]
        if not word.startswith("-") and word not in known:
            similar = difflib.get_close_matches(word, known, 1)
            hint = f"did you mean {similar[0]}? " if similar else ""
            _parser().error(f"unknown command {word}: {hint}See `distributed-input --help`")


def _interruptible(command: str, arguments: Sequence[str]) -> int:
    """Run a command that Ctrl-C ends, or the end of the program that reads its output."""
    try:
        try:
            return _entry(command)(arguments)
        finally:
            sys.stdout.flush()  # an output that is closed fails here, and not when Python ends
    except KeyboardInterrupt:
        return _EXIT_INTERRUPTED
    except BrokenPipeError:
        # What is still in Python's buffer would fail again when Python ends.
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
        return _EXIT_BROKEN_PIPE


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
    sys.exit(
        f"distributed-input {command}: not installed. With the flags that you installed "
        f"distributed-input with, such as --find-links dist, run: pip install {distribution}"
    )


def _help() -> int:
    _parser().print_help()
    return 0


def _version() -> int:
    from importlib import metadata

    try:
        print(f"distributed-input {metadata.version('distributed-input')}")
    except metadata.PackageNotFoundError:
        print("distributed-input (not installed: run from its sources)")
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="distributed-input",
        description="Input pipelines for accelerators, run by Kubernetes or on one machine.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="store_true", help="print the version")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND")
    for name, (_, description) in {**_COMMANDS, **_PLUGINS}.items():
        commands.add_parser(name, help=description, add_help=False)
    commands.add_parser("version", help="print the version", add_help=False)
    commands.add_parser("help", help="print this text, or that of a COMMAND", add_help=False)
    return parser


if __name__ == "__main__":
    sys.exit(main())
