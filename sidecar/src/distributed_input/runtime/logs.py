"""Logs: one JSON object a line on stderr, for people and log collectors alike.

    log = logs.get("sidecar.streams")
    log.warning("stream broken", worker=address, split=3)

Keyword arguments become fields of the object. Secrets named to `redact`, and whatever
follows the word Bearer, never appear.
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
_SHORTEST_SECRET = 8  # hiding "x" would garble every line and protect nobody
_RESERVED = frozenset({"time", "level", "part", "logger", "message", "traceback"})

LEVELS = ("debug", "info", "warning", "error")


class _Secrets:
    """The strings that no line may hold."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._values: tuple[str, ...] = ()

    def add(self, value: str) -> None:
        with self._lock:
            if len(value) >= _SHORTEST_SECRET and value not in self._values:
                # Bounded: a token that rotates for years must not grow the process.
                self._values = (*self._values[-15:], value)

    def hide(self, text: str) -> str:
        """`text`, which is JSON, without them."""
        for value in self._values:
            text = text.replace(json.dumps(value)[1:-1], _HIDDEN)
        return _BEARER.sub(rf"\1{_HIDDEN}", text)


_secrets = _Secrets()


def redact(secret: str) -> None:
    """Keep `secret`, of 8 characters or more, out of every line (the latest 16 are remembered)."""
    _secrets.add(secret)


class JsonFormatter(logging.Formatter):
    """A log record as one line of JSON: time (UTC, ISO, ms), level, part, message, fields."""

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
        return _secrets.hide(json.dumps(line, default=str, ensure_ascii=False))


class Log:
    """A logger whose keyword arguments are fields. Cheap where the level is off."""

    def __init__(self, name: str) -> None:
        self._logger = logging.getLogger(f"{_ROOT}.{name}")

    def _emit(self, level: int, message: str, fields: dict[str, Any], trace: bool = False) -> None:
        if self._logger.isEnabledFor(level):
            # No % formatting: a message may hold user text with a percent sign.
            self._logger.log(level, "%s", message, extra={"fields": fields}, exc_info=trace)

    def debug(self, message: str, **fields: Any) -> None:
        """For whoever debugs this package."""
        self._emit(logging.DEBUG, message, fields)

    def info(self, message: str, **fields: Any) -> None:
        """What changed."""
        self._emit(logging.INFO, message, fields)

    def warning(self, message: str, **fields: Any) -> None:
        """What somebody should look at; work goes on."""
        self._emit(logging.WARNING, message, fields)

    def error(self, message: str, **fields: Any) -> None:
        """What stopped some work."""
        self._emit(logging.ERROR, message, fields)

    def exception(self, message: str, **fields: Any) -> None:
        """An error with the traceback of the exception being handled."""
        self._emit(logging.ERROR, message, fields, trace=True)


def get(name: str) -> Log:
    """The log named `name`, below `distributed_input`."""
    return Log(name)


def setup(part: str, level: str = "info", stream: IO[str] | None = None) -> None:
    """Send all logs of this process to `stream` (stderr) as JSON lines.

    `level` (one of LEVELS) is that of this package; libraries log from warning on.
    (gRPC's C core writes lines of its own, rarely, that are not JSON.)
    """
    handler = logging.StreamHandler(stream or sys.stderr)
    handler.setFormatter(JsonFormatter(part))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(logging.WARNING)
    logging.getLogger(_ROOT).setLevel(level.upper())
    logging.captureWarnings(True)
