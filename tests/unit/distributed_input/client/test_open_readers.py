"""Only the process that connected reads: a fork gets an error and does not disturb its parent."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, FencedError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.client import open_readers
from distributed_input.client.input import Input
from distributed_input.client.reader import InputReader
from testing.processes.forks import Fork
from tests.unit.distributed_input.client.sidecars import SECONDS, Sidecar, Trainer


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    sidecar = Sidecar(tmp_path)
    yield sidecar
    sidecar.close()


def begun(folder: Path, sidecar: Sidecar) -> tuple[InputReader, Trainer, int]:
    reader = InputReader(folder, "", SECONDS)
    reader.open(types_pb2.Job(), b"", 1)
    trainer = sidecar.trainer()
    generation = reader.begin()
    assert trainer.start().generation == generation
    return reader, trainer, generation


@pytest.mark.parametrize("use", ["iterator", "new iterator", "open"])
def test_a_fork_that_reads_gets_an_error_with_the_remedy(
    tmp_path: Path, sidecar: Sidecar, use: str
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    units = reader.units(generation)
    trainer.unit(generation, 0, step=1)
    batch = next(units)
    waiting = threading.Thread(target=lambda: next(reader.units(generation)))
    waiting.start()  # it holds the lock when the process forks
    while not reader._receive_lock.locked():
        pass

    def read() -> str:
        if use == "iterator":
            return f"read {next(units).rows} rows"
        if use == "open":
            return f"opened {reader.open(types_pb2.Job(), b'', 1)}"
        return f"began {reader.begin()}"

    error = Fork(read).result()
    assert error.startswith(f"ConfigError: input train was connected in process {os.getpid()}")
    assert "num_workers=0" in error
    trainer.unit(generation, 1, step=2)
    waiting.join(SECONDS)
    trainer.unit(generation, 2, step=3)
    assert next(units).rows == batch.rows == 1
    assert reader.position().step == 3
    reader.close()


def test_units_that_had_arrived_belong_to_the_parent(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    for index in range(3):
        trainer.unit(generation, index, step=index + 1)
    units = reader.units(generation)
    next(units)
    reader._queue.add(reader._session.channel, reader._session.receive(SECONDS))
    assert Fork(lambda: f"read {next(units).rows} rows").result().startswith("ConfigError")
    assert [next(units).rows, next(units).rows] == [1, 1]
    reader.close()


def test_the_end_of_a_fork_does_not_disturb_the_parent(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.unit(generation, 0, step=1)
    units = reader.units(generation)
    batch: object = next(units)

    def end() -> str:
        nonlocal batch, units, reader
        reader.close()
        batch = units = reader = None  # type: ignore[assignment]
        sys.stdout.flush()
        return "ended"

    assert Fork(end).result() == "ended"
    trainer.unit(generation, 1, step=2)
    assert next(units).rows == 1
    assert [m for m in received(trainer) if m != "progress"] == []
    reader.close()


def received(trainer: Trainer) -> list[str | None]:
    messages = []
    while not trainer.received.empty():
        messages.append(trainer.received.get().WhichOneof("message"))
    return messages


def test_the_sidecar_sees_the_end_of_the_parent_while_a_fork_runs(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, _ = begun(tmp_path, sidecar)
    hold, release = os.pipe()

    def wait() -> str:
        os.close(release)
        return f"waited {len(os.read(hold, 1))}"

    fork = Fork(wait)
    reader.close()
    for watcher in [t for t in threading.enumerate() if t.name == "sidecar-watch"]:
        watcher.join(SECONDS)
    del reader
    trainer._thread.join(SECONDS)
    ended = not trainer._thread.is_alive()
    os.close(release)
    assert fork.result() == "waited 0"
    os.close(hold)
    assert ended


def test_a_fork_reads_with_a_connection_of_its_own(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, _, _ = begun(tmp_path, sidecar)

    def read() -> str:
        mine = InputReader(tmp_path, "", SECONDS)
        mine.open(types_pb2.Job(), b"", 1)
        units = mine.units()
        return f"read {next(units).rows} rows"

    fork = Fork(read)
    theirs = sidecar.trainer()
    generation = theirs.start().generation
    theirs.unit(generation, 0, step=1)
    assert fork.result() == "read 1 rows"
    reader.close()


def test_a_second_reader_of_a_job_ends_the_first(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, _, generation = begun(tmp_path, sidecar)
    second = InputReader(tmp_path, "", SECONDS)
    with pytest.raises(FencedError, match="was opened again"):
        next(reader.units(generation))
    second.close()


def test_an_input_cannot_be_sent_to_another_process(tmp_path: Path, sidecar: Sidecar) -> None:
    reader = InputReader(tmp_path, "", SECONDS)
    with pytest.raises(ConfigError, match=r"input train cannot be sent.*num_workers=0"):
        pickle.dumps(Input(reader))
    reader.close()


# The end of the program.


def test_a_stopped_reader_raises_and_leaves_the_job_open(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def read() -> None:
        try:
            next(reader.units(generation))
        except UnavailableError as error:
            errors.put(error)

    reading = threading.Thread(target=read)
    reading.start()
    open_readers.stop_all(UnavailableError("the program ends"))
    assert str(errors.get(timeout=SECONDS)) == "the program ends"
    trainer.close()
    while not trainer.received.empty():
        assert not trainer.received.get().HasField("close")
    reading.join(SECONDS)
    with pytest.raises(UnavailableError, match="the program ends"):
        reader.begin()
