"""Times as Kubernetes writes them: RFC 3339 in UTC, whole seconds."""

from __future__ import annotations

from datetime import datetime, timezone


def text(seconds: float) -> str:
    """Seconds since 1970 as "2025-01-31T12:00:00Z"."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def seconds(written: str) -> float | None:
    """Seconds since 1970; None for what is empty or no time."""
    try:
        return datetime.strptime(written, "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None
