"""The flags that all processes have, and the exit status for an invalid configuration."""

from __future__ import annotations

import argparse
import math
import sys
from collections.abc import Callable, Sequence

from distributed_input.api import flags
from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runtime import logs

EXIT_CONFIG = 2


def parser(part: str, description: str) -> argparse.ArgumentParser:
    """Return a parser for process `part` (dispatcher, worker or sidecar) with the common flags."""
    flags_parser = argparse.ArgumentParser(
        prog=f"distributed-input {part}", description=description, allow_abbrev=False
    )
    flags_parser.add_argument(
        flags.TOKEN_FILE, metavar="FILE", help="file with the input's token; read again on change"
    )
    flags_parser.add_argument(
        flags.METRICS_LISTEN,
        default=flags.METRICS_OFF,
        metavar="HOST:PORT|off",
        help="address that serves /metrics and /healthz over HTTP (default: off)",
    )
    flags_parser.add_argument(
        flags.READY_FILE,
        metavar="FILE",
        help="file to write when the process is ready: a JSON object with its addresses",
    )
    flags_parser.add_argument(
        flags.GRACE_SECONDS,
        type=seconds,
        default=20.0,
        metavar="SECONDS",
        help="time limit to drain after SIGTERM (default: 20)",
    )
    flags_parser.add_argument(
        flags.LOG_LEVEL,
        choices=logs.LEVELS,
        default="info",
        help="lowest level of log lines (default: info)",
    )
    return flags_parser


def add_listen(flags_parser: argparse.ArgumentParser, default: str = "127.0.0.1:0") -> None:
    """Add --listen HOST:PORT."""
    flags_parser.add_argument(
        flags.LISTEN,
        default=default,
        metavar="HOST:PORT",
        help=f"address to serve on; port 0 selects a free port (default: {default})",
    )


def seconds(text: str) -> float:
    """Parse a duration of 0 or more seconds, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not math.isfinite(value) or value < 0:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of seconds, 0 or more")
    return value


def positive_seconds(text: str) -> float:
    """Parse a duration of more than 0 seconds, for argparse."""
    value = seconds(text)
    if value == 0:
        raise argparse.ArgumentTypeError("must be more than 0 seconds")
    return value


def exit_code(
    part: str, body: Callable[[Sequence[str] | None], int], argv: Sequence[str] | None
) -> int:
    """Run `body(argv)` and return its status.

    On a ConfigError, print one line to stderr and return status 2. A start that may succeed later
    (UnavailableError) returns status 1.
    """
    try:
        return body(argv)
    except (ConfigError, UnavailableError) as error:
        sys.stderr.write(f"distributed-input {part}: {error}\n")
        return EXIT_CONFIG if isinstance(error, ConfigError) else 1
