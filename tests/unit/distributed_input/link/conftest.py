from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest


@pytest.fixture
def folder() -> Iterator[Path]:
    """Yield a folder for sockets. The paths of tmp_path are too long."""
    with tempfile.TemporaryDirectory() as created:
        yield Path(created)
