from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed_input.runtime.credentials import Credentials
from distributed_input.sidecar.streams.pool import WorkerPool


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """One that nobody is in."""
    made = WorkerPool(Credentials())
    yield made
    made.close()
