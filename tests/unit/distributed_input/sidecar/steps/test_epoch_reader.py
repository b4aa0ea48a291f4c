from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.proto import worker_pb2
from tests.unit.distributed_input.sidecar import system
from tests.unit.distributed_input.sidecar.system import Worker, eventually, running

PARTITIONS, SPLITS = 2, 4


class HeldWorker(Worker):
    """Records the splits that are requested, and sends no rows until `released`."""

    requested: list[int]
    released: threading.Event

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        self.requested.append(request.split)
        assert self.released.wait(20)
        yield from super().Stream(request, _context)


def test_splits_are_read_ahead_only_after_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(HeldWorker, "requested", [], raising=False)
    monkeypatch.setattr(HeldWorker, "released", threading.Event(), raising=False)
    monkeypatch.setattr(system, "Worker", HeldWorker)
    with running(tmp_path) as parts:
        parts.add_sidecar()
        reader = parts.connect()
        reader.begin()
        eventually(lambda: len(HeldWorker.requested) == PARTITIONS)
        assert not threading.Event().wait(0.3)  # enough for a split opened at once to be requested
        assert len(HeldWorker.requested) == PARTITIONS
        HeldWorker.released.set()
        batch = next(reader.units())
        assert batch.rows == system.BATCH
        eventually(lambda: len(set(HeldWorker.requested)) == SPLITS)
        reader.close()
