"""The flags that all processes have, and how they are parsed together with a pod's document."""

from __future__ import annotations

import argparse
import difflib
import math
import os
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from distributed_input.api import flags, process_config
from distributed_input.api.environment import CONFIG_ENV
from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runtime import logs

EXIT_CONFIG = 2
_log = logs.get("runtime.args")


class CommandParser(argparse.ArgumentParser):
    """A parser of a command. It takes no abbreviated flags, and keeps the lines of its texts.

    If a flag is unknown, the error names the flag that it resembles.
    """

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", argparse.RawDescriptionHelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Parse the arguments, or print one line about the first unknown flag and exit."""
        parsed, unknown = self.parse_known_args(args, namespace)
        flag = next((one.partition("=")[0] for one in unknown if one.startswith("-")), "")
        if flag:
            self.error(f"unknown flag {flag}{suggestion(flag, self._option_string_actions)}")
        if unknown:
            self.error(f"unexpected argument: {' '.join(unknown)}")
        return parsed


def suggestion(word: str, known: Iterable[str]) -> str:
    """Return a part of a message that names the known word that is most similar, or ""."""
    found = difflib.get_close_matches(word, list(known), 1)
    return f": did you mean {found[0]}?" if found else ""


def parser(part: str, description: str) -> CommandParser:
    """Return a parser for process `part` (dispatcher, worker or sidecar) with the common flags."""
    flags_parser = CommandParser(
        prog=f"distributed-input {part}",
        description=description,
        formatter_class=argparse.HelpFormatter,
        epilog=f"The variable {CONFIG_ENV} may have the values of flags as a JSON document: "
        '{"version": 1, "logLevel": "debug"}. Flags take precedence.',
    )
    flags_parser.add_argument(
        flags.TOKEN_FILE, metavar="FILE", help="file with the input's token; read again on change"
    )
    flags_parser.add_argument(
        flags.TLS_DIR,
        metavar="DIR",
        help="folder with the process's certificate, which replaces the token: tls.crt, tls.key "
        "and ca.crt; read again on change (default: no encryption)",
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


def parse(
    part: str, flags_parser: argparse.ArgumentParser, argv: Sequence[str] | None
) -> argparse.Namespace:
    """Parse the flags and the document in the environment, and set up the log.

    Settings of the document that the parser does not have are ignored, see `process_config`. The
    parser has the flag --log-level. Without `argv`, the flags are those of this process.

    Raises:
        ConfigError: the document is invalid.
    """
    text = os.environ.get(CONFIG_ENV)
    document = process_config.document_flags(text) if text else []
    words = list(sys.argv[1:] if argv is None else argv)
    _, unknown = flags_parser.parse_known_args([*document, *words])
    known = [word for word in document if word not in unknown]
    args = flags_parser.parse_args([*known, *words])
    logs.setup(part, args.log_level)
    if len(known) < len(document):
        fields = sorted({process_config.field_of(word) for word in document if word in unknown})
        _log.warning("ignored settings that this release does not have", settings=fields)
    return args


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
