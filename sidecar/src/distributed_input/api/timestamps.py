"""Timestamps as Kubernetes writes them: RFC 3339 in UTC, in whole seconds."""

from __future__ import annotations

from datetime import datetime, timezone


def to_text(seconds: float) -> str:
    """Return seconds since 1970 as text such as "2025-01-31T12:00:00Z"."""
    return datetime.fromtimestamp(int(seconds), timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


def to_seconds(text: str | None) -> float | None:
    """Return a timestamp as seconds since 1970, or None if the text is not a timestamp."""
    try:
        return datetime.strptime(text or "", "%Y-%m-%dT%H:%M:%S%z").timestamp()
    except ValueError:
        return None
