"""The command `distributed-input`, for users and for the containers of pods.

The processes of pods, and the commands of other distributions, have parsers of their own and do not
need click. Each module is imported when it is called: only `worker` needs TensorFlow.
"""

from __future__ import annotations

import importlib
import importlib.util
import io
import os
import sys
from collections.abc import Callable, Sequence
from importlib import metadata

EXIT_CONFIG = 2

COMMANDS = {
    "init": "write a small project: input.yaml, dataset.py and train.py",
    "run": "run an input pipeline and a trainer on this machine",
    "validate": "check the YAML of an input, and import its entry point",
    "bench": "measure what workers would gain for your dataset",
    "status": "show the trainers and workers of running inputs",
    "explain": "name what the trainers of running inputs wait for",
    "rows": "show the rows of steps, and the records that splits left out",
    "top": "show the rates of trainers and workers, again and again",
    "dashboard": "serve a page about running inputs, for a browser on this machine",
    "store": "list, verify or remove stored splits",
    "logs": "print the logs of an input's processes",
    "doctor": "check the installation: this machine, Python packages, the cluster",
    "completion": "print a script that completes commands in a shell",
}
PROCESSES = {
    "dispatcher": "start a dispatcher: the registry of workers, trainers and jobs",
    "worker": "start a worker: it runs the input pipeline (needs TensorFlow)",
    "sidecar": "start a sidecar: it fetches one trainer's share of the rows",
}
PLUGINS = {"inject": "add the sidecar to pods in YAML files"}
"""Commands of other distributions. Entry points in the group `distributed_input.commands`."""
_OF_PLUGINS = "distributed-input-operator"
_OTHERS = {"version": "print the version", "help": "print this text, or that of a COMMAND"}

_PACKAGES = ("click", "psutil")
_NEED_TENSORFLOW = ("run", "validate", "bench")
_EXIT_INTERRUPTED = 130
_EXIT_BROKEN_PIPE = 141
"""128 and the number of the signal, as shells report it."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one subcommand; return its exit status."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # a name may be none in the locale's encoding
            stream.reconfigure(errors="backslashreplace")
    arguments = list(sys.argv[1:] if argv is None else argv)
    if arguments[:1] == ["help"]:
        arguments = [*arguments[1:2], "--help"]  # `help top` is `top --help`
    command, *flags = arguments or [""]
    if command in PROCESSES:
        return _entry(command)(flags)  # they handle signals
    try:
        try:
            return _version() if command in ("version", "--version") else _entry(command)(flags)
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
    if command in PLUGINS:
        return _plugin(command)
    if command not in PROCESSES:
        return lambda flags: _click([command, *flags] if command else [])
    entry: Callable[[Sequence[str]], int]
    entry = importlib.import_module(f"distributed_input.{command}.main").main
    return entry


def _click(arguments: Sequence[str]) -> int:
    """Run a command of the runner, or print what completes one if a shell asks for it."""
    missing = [name for name in _PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        extra = "run" if arguments[:1] and arguments[0] in _NEED_TENSORFLOW else "cli"
        print(
            f"distributed-input: {' and '.join(missing)} not installed: run `pip install "
            f"'distributed-input[{extra}]'`",
            file=sys.stderr,
        )
        return EXIT_CONFIG
    from distributed_input.runner.commands import COMPLETE_VARIABLE, Commands

    commands = Commands(COMMANDS, {**PROCESSES, **PLUGINS, **_OTHERS})
    if instruction := os.environ.get(COMPLETE_VARIABLE):
        from click.shell_completion import shell_complete

        program = "distributed-input"
        return shell_complete(commands, {}, program, COMPLETE_VARIABLE, instruction)
    return commands.status(arguments)


def _plugin(command: str) -> Callable[[Sequence[str]], int]:
    for found in metadata.entry_points(group="distributed_input.commands", name=command):
        entry: Callable[[Sequence[str]], int] = found.load()
        return entry
    sys.exit(
        f"distributed-input {command}: not installed. With the flags that you installed "
        f"distributed-input with, such as --find-links dist, run: pip install {_OF_PLUGINS}"
    )


def _version() -> int:
    try:
        print(f"distributed-input {metadata.version('distributed-input')}")
    except metadata.PackageNotFoundError:
        print("distributed-input (not installed: run from its sources)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
