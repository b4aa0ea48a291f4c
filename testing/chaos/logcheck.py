"""What the logs of a schedule's processes tell: what should not be there, and replays."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

Entries = Sequence[tuple[str, dict[str, Any]]]
_NEVER = ("replay differs", "facts contradict")  # the datasets are deterministic
_MOST = 5


@dataclass(frozen=True)
class Replay:
    """A stream that was opened again: when (Unix seconds), and how many rows are made anew."""

    at: float
    split: int
    rows: int


def suspicious(logs: Entries) -> list[str]:
    """Errors, tracebacks, and warnings that a deterministic dataset never causes."""
    found = [
        f"{name}: {entry.get('message')}: {_rest(entry)}"
        for name, entry in logs
        if entry.get("level") in {"error", "raw"} or entry.get("message") in _NEVER
    ]
    return found[:_MOST]


def replays(logs: Entries) -> list[Replay]:
    """The streams that sidecars opened again."""
    return [
        Replay(datetime.fromisoformat(entry["time"]).timestamp(), entry["split"], entry["row"])
        for _, entry in logs
        if entry.get("message") == "stream broke; opening it again"
    ]


def _rest(entry: dict[str, Any]) -> str:
    told = {k: v for k, v in entry.items() if k not in {"time", "level", "message", "logger"}}
    return str(told)[:1500]
