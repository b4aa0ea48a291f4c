from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from distributed_input.api import sidecar_memory
from distributed_input.api.errors import UnavailableError
from distributed_input.client import session
from distributed_input.client.reader import InputReader
from tests.unit.distributed_input.sidecar.system import System, running

ROWS, SPLITS, BATCH, TIMEOUT = 1200, 3, 4, 1.0
LONG = ROWS * 2 // SPLITS * 2 // BATCH
"""Number of steps of consumer 0, whose partition has two of the three splits."""


def trainers(system: System, folder: Path) -> list[InputReader]:
    """Connect two trainers. The second has fewer rows, and a buffer for all of them."""
    readers = []
    for consumer, buffer in enumerate((1 << 12, 1 << 16)):
        own = replace(system, folder=folder / str(consumer))
        own.folder.mkdir()
        settings = {"bufferBytes": buffer, "timeoutSeconds": TIMEOUT}
        own.add_sidecar(consumer, 2, numSplits=SPLITS, sidecar=settings)
        readers.append(own.connect())
    return readers


@pytest.fixture(autouse=True)
def _queue_one_block(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sidecar_memory, "_QUEUE_BYTES", 1)
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.1)


@pytest.mark.parametrize("waited_before", [False, True])
def test_trainers_may_pause_for_longer_than_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, waited_before: bool
) -> None:
    """The second sidecar is at its end, and does not know whether the first has more rows."""
    if waited_before:  # so long for the first batch that the trainer has reported it
        monkeypatch.setattr(session, "_POLL_SECONDS", 0.001)
    with running(tmp_path, ROWS) as system:
        both = trainers(system, tmp_path)
        batches = [reader.units(reader.begin()) for reader in both]
        for each in batches:
            assert next(each).rows == BATCH // 2
        threading.Event().wait(3 * TIMEOUT)  # both trainers validate
        with ThreadPoolExecutor(2) as pool:
            steps = list(pool.map(lambda rest: 1 + sum(1 for _ in rest), batches))
        assert steps == [LONG, LONG]
        for reader in both:
            reader.close()


def test_a_trainer_that_waits_for_another_one_times_out(tmp_path: Path) -> None:
    with running(tmp_path, ROWS) as system:
        first, second = trainers(system, tmp_path)
        next(first.units(first.begin()))
        with pytest.raises(UnavailableError, match=r"other trainers' end .*timeoutSeconds"):
            for _ in second.units(second.begin()):
                pass
        first.close()
        second.close()
