from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.trainer import open_consumers
from tests.unit.distributed_input.trainer.sidecars import Sidecar


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    """Yield a sidecar in `tmp_path`. At the end, close it and all consumers."""
    sidecar = Sidecar(tmp_path)
    yield sidecar
    for consumer in list(open_consumers._consumers):
        consumer.close()
    sidecar.close()
