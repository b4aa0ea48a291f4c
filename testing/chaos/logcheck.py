"""Problems and replays in the logs of a schedule's processes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Entries = Sequence[tuple[str, dict[str, Any]]]
_NEVER = ("replay differs", "facts contradict")  # the datasets are deterministic
_MAX_LINES = 5


@dataclass(frozen=True)
class Replay:
    """A reopened stream: the time (Unix seconds) and the number of rows to compute again."""

    at: float
    split: int
    rows: int


def suspicious(logs: Entries) -> list[str]:
    """Return errors, tracebacks, and warnings that a deterministic dataset cannot cause."""
    found = [
        f"{name}: {entry.get('message')}: {_rest(entry)}"
        for name, entry in logs
        if entry.get("level") in {"error", "raw"} or entry.get("message") in _NEVER
    ]
    return found[:_MAX_LINES]


def replays(logs: Entries) -> list[Replay]:
    """Return the streams that sidecars reopened."""
    return [
        Replay(datetime.fromisoformat(entry["time"]).timestamp(), entry["split"], entry["row"])
        for _, entry in logs
        if entry.get("message") == "stream broke; opening it again"
    ]


def _rest(entry: dict[str, Any]) -> str:
    fields = {k: v for k, v in entry.items() if k not in {"time", "level", "message", "logger"}}
    return str(fields)[:1500]
