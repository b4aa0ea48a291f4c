"""A plugin of pytest: short temporary folders. Sockets are below them, because /dev/shm is hidden.

A socket's path has at most 103 characters on macOS.
"""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    """Yield a folder such as /tmp/x0123456."""
    with tempfile.TemporaryDirectory(prefix="", dir="/tmp", ignore_cleanup_errors=True) as created:
        yield Path(created)
