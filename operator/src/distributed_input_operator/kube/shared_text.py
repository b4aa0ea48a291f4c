"""Texts that many parts of the operator keep: each one once in memory."""

from __future__ import annotations

import sys

_NEVER_FREED = ((3, 12), (3, 12, 7))
"""From the first to before the second of these versions, Python never frees an interned string."""


def shared(text: str) -> str:
    """Return the first text that equals this one, if Python frees it when nothing uses it."""
    first, fixed = _NEVER_FREED
    return text if first <= sys.version_info[:3] < fixed else sys.intern(text)
