from __future__ import annotations

import tempfile
from collections.abc import Iterator

import pytest


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Yield a folder for sockets. The paths of tmp_path are too long."""
    with tempfile.TemporaryDirectory() as folder:
        yield folder
