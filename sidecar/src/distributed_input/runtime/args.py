"""The flags that all processes have, and how a bad one ends a process."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import logs

EXIT_CONFIG = 2


def parser(part: str, description: str) -> argparse.ArgumentParser:
    """A parser for `python -m distributed_input.<part>` with the flags that all parts have."""
    made = argparse.ArgumentParser(
        prog=f"distributed-input {part}", description=description, allow_abbrev=False
    )
    made.add_argument("--token-file", help="file with the input's bearer token; re-read on change")
    made.add_argument(
        "--metrics-listen",
        default="off",
        metavar="HOST:PORT|off",
        help="where to serve /metrics and /healthz over HTTP (default: off)",
    )
    made.add_argument(
        "--ready-file",
        help="gets a JSON object with the addresses once this process serves",
    )
    made.add_argument(
        "--grace-seconds",
        type=seconds,
        default=20.0,
        help="time to drain after SIGTERM (default: 20)",
    )
    made.add_argument("--log-level", choices=logs.LEVELS, default="info")
    return made


def add_listen(made: argparse.ArgumentParser, default: str = "127.0.0.1:0") -> None:
    """Add --listen HOST:PORT."""
    made.add_argument(
        "--listen",
        default=default,
        metavar="HOST:PORT",
        help=f"port 0: any (default: {default})",
    )


def seconds(text: str) -> float:
    """A duration of zero or more seconds, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def positive_seconds(text: str) -> float:
    """A duration above zero seconds, for argparse."""
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return value


def exit_code(
    part: str, body: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None
) -> int:
    """Run `body(argv)`; a ConfigError becomes one line on stderr and status 2."""
    try:
        return body(argv)
    except ConfigError as error:
        sys.stderr.write(f"distributed-input {part}: {error}\n")
        return EXIT_CONFIG
