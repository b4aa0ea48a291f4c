"""What an epoch opens first, and what only once the first rows are there."""

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


class Held(Worker):
    """Notes which splits are asked for, and says nothing until it is let go."""

    asked: list[int]
    go: threading.Event

    def Stream(  # noqa: N802
        self, request: worker_pb2.StreamRequest, _context: Any
    ) -> Iterator[bytes]:
        self.asked.append(request.split)
        assert self.go.wait(20)
        yield from super().Stream(request, _context)


def test_splits_are_read_ahead_only_behind_the_first_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Held, "asked", [], raising=False)
    monkeypatch.setattr(Held, "go", threading.Event(), raising=False)
    monkeypatch.setattr(system, "Worker", Held)
    with running(tmp_path) as up:
        up.add_sidecar()
        reader = up.connect()
        reader.begin()
        eventually(lambda: len(Held.asked) == PARTITIONS)
        assert not threading.Event().wait(0.3)  # what would be opened at once would be by now
        assert len(Held.asked) == PARTITIONS
        Held.go.set()
        batch = next(reader.units())
        assert batch.rows == system.BATCH
        eventually(lambda: len(set(Held.asked)) == SPLITS)
        reader.close()
