from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed_input.link.credentials import Credentials
from distributed_input.sidecar.streams.worker_pool import WorkerPool


@pytest.fixture
def pool() -> Iterator[WorkerPool]:
    """A pool without workers."""
    pool = WorkerPool(Credentials())
    yield pool
    pool.close()
