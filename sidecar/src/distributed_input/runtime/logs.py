"""Logs: one JSON object per line on stderr.

    log = logs.get("sidecar.streams")
    log.warning("stream broken", worker=address, split=3)

Keyword arguments become fields of the object. Secrets passed to `redact`, and words after
"Bearer", are replaced.
"""

from __future__ import annotations

import json
import logging
import re
import sys
import threading
import time
from typing import IO, Any

_ROOT = "distributed_input"
_BEARER = re.compile(r"(?i)(bearer\s+)[^\s\"'\\,)]+")
_HIDDEN = "***"
_SHORTEST_SECRET = 8  # replacing short strings would make lines unreadable
_RESERVED = frozenset({"time", "level", "part", "logger", "message", "traceback"})

LEVELS = ("debug", "info", "warning", "error")


_secrets: tuple[str, ...] = ()
"""Strings that are replaced in every line. At most 16, because tokens may rotate for years."""
_secrets_lock = threading.Lock()


def redact(secret: str) -> None:
    """Replace `secret` in every line. It needs 8 characters; only the last 16 secrets are kept."""
    global _secrets  # noqa: PLW0603 - like the loggers, one for the process
    with _secrets_lock:
        if len(secret) >= _SHORTEST_SECRET and secret not in _secrets:
            _secrets = (*_secrets[-15:], secret)


def _without_secrets(line: str) -> str:
    """Return a line, which is JSON, without the secrets."""
    for secret in _secrets:
        line = line.replace(json.dumps(secret)[1:-1], _HIDDEN)
    return _BEARER.sub(rf"\1{_HIDDEN}", line)


class JsonFormatter(logging.Formatter):
    """Formats a log record as one line of JSON with time (UTC), level, part, message and fields."""

    def __init__(self, part: str) -> None:
        super().__init__()
        self._part = part

    def format(self, record: logging.LogRecord) -> str:
        stamp = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        line: dict[str, Any] = {
            "time": f"{stamp}.{int(record.msecs):03d}Z",
            "level": record.levelname.lower(),
            "part": self._part,
            "logger": record.name.removeprefix(_ROOT + "."),
            "message": record.getMessage(),
        }
        fields = getattr(record, "fields", None) or {}
        for name, value in fields.items():
            line[f"{name}_" if name in _RESERVED else name] = value
        if record.exc_info:
            line["traceback"] = self.formatException(record.exc_info)
        return _without_secrets(json.dumps(line, default=str, ensure_ascii=False))


class Log:
    """A logger whose keyword arguments become fields. Calls below the log level are cheap."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def _emit(self, level: int, message: str, fields: dict[str, Any], trace: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            # Without % formatting, because a message may contain user text with a percent sign.
            self._logger.log(level, "%s", message, extra={"fields": fields}, exc_info=trace)

    def debug(self, message: str, **fields: Any) -> None:
        """Log a detail for debugging this package."""
        self._emit(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """Log a change."""
        self._emit(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """Log a problem that needs attention. The work continues."""
        self._emit(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """Log a problem that stopped some work."""
        self._emit(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """Log an error with the traceback of the exception that is being handled."""
        self._emit(logging.ERROR, message, fields, trace=True)


def get(name: str) -> Log:
    """Return the log named `distributed_input.<name>`."""
    return Log(name)


def setup(part: str, level: str = "info", stream: IO[str] | None = None) -> None:
    """Send all logs of this process to `stream` (stderr) as JSON lines.

    `level` (one of LEVELS) applies to this package. Libraries log warnings and errors. gRPC's C
    core sometimes writes lines that are not JSON.
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(part))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(level.upper())
    logging.captureWarnings(True)
