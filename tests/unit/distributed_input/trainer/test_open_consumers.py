"""Only the process that connected reads: a fork gets an error and does not disturb its parent."""

from __future__ import annotations

import os
import pickle
import queue
import sys
import threading
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, FencedError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.trainer import open_consumers
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import Input
from testing.processes.forks import Fork
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar, Trainer, begun


@pytest.mark.parametrize("use", ["iterator", "new iterator", "open"])
def test_a_fork_that_reads_gets_an_error_with_the_remedy(sidecar: Sidecar, use: str) -> None:
    consumer, trainer, generation = begun(sidecar)
    units = consumer.units(generation)
    trainer.unit(generation, 0, step=1)
    batch = next(units)
    waiting = threading.Thread(target=lambda: next(consumer.units(generation)))
    waiting.start()  # it holds the lock when the process forks
    while not consumer._receive_lock.locked():
        pass

    def read() -> str:
        if use == "iterator":
            return f"read {next(units).rows} rows"
        if use == "open":
            return f"opened {consumer.open(types_pb2.Job(), b'', 1)}"
        return f"began {consumer.begin()}"

    error = Fork(read).result()
    assert error.startswith(f"ConfigError: input train was connected in process {os.getpid()}")
    assert "num_workers=0" in error
    trainer.unit(generation, 1, step=2)
    waiting.join(SECONDS)
    trainer.unit(generation, 2, step=3)
    assert next(units).rows == batch.rows == 1
    assert consumer.position().step == 3


def test_units_that_had_arrived_belong_to_the_parent(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    for index in range(3):
        trainer.unit(generation, index, step=index + 1)
    units = consumer.units(generation)
    next(units)
    consumer._queue.add(consumer._session.channel, consumer._session.receive(SECONDS))
    assert Fork(lambda: f"read {next(units).rows} rows").result().startswith("ConfigError")
    assert [next(units).rows, next(units).rows] == [1, 1]


def test_the_end_of_a_fork_does_not_disturb_the_parent(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    trainer.unit(generation, 0, step=1)
    units = consumer.units(generation)
    batch: object = next(units)

    def end() -> str:
        nonlocal batch, units, consumer
        consumer.close()
        batch = units = consumer = None  # type: ignore[assignment]
        sys.stdout.flush()
        return "ended"

    assert Fork(end).result() == "ended"
    trainer.unit(generation, 1, step=2)
    assert next(units).rows == 1
    assert [m for m in received(trainer) if m != "progress"] == []


def received(trainer: Trainer) -> list[str | None]:
    messages = []
    while not trainer.received.empty():
        messages.append(trainer.received.get().WhichOneof("message"))
    return messages


def test_the_sidecar_sees_the_end_of_the_parent_while_a_fork_runs(sidecar: Sidecar) -> None:
    consumer, trainer, _ = begun(sidecar)
    hold, release = os.pipe()

    def wait() -> str:
        os.close(release)
        return f"waited {len(os.read(hold, 1))}"

    fork = Fork(wait)
    consumer.close()
    for watcher in [t for t in threading.enumerate() if t.name == "sidecar-watch"]:
        watcher.join(SECONDS)
    del consumer
    trainer._thread.join(SECONDS)
    ended = not trainer._thread.is_alive()
    os.close(release)
    assert fork.result() == "waited 0"
    os.close(hold)
    assert ended


def test_a_fork_reads_with_a_connection_of_its_own(tmp_path: Path, sidecar: Sidecar) -> None:
    _consumer, _, _ = begun(sidecar)

    def read() -> str:
        mine = Consumer(tmp_path, "", SECONDS)
        mine.open(types_pb2.Job(), b"", 1)
        units = mine.units()
        return f"read {next(units).rows} rows"

    fork = Fork(read)
    theirs = sidecar.trainer()
    generation = theirs.start().generation
    theirs.unit(generation, 0, step=1)
    assert fork.result() == "read 1 rows"


def test_a_second_consumer_of_a_job_ends_the_first(tmp_path: Path, sidecar: Sidecar) -> None:
    consumer, _, generation = begun(sidecar)
    _second = Consumer(tmp_path, "", SECONDS)
    with pytest.raises(FencedError, match="was opened again"):
        next(consumer.units(generation))


def test_an_input_cannot_be_sent_to_another_process(tmp_path: Path, sidecar: Sidecar) -> None:
    consumer = Consumer(tmp_path, "", SECONDS)
    with pytest.raises(ConfigError, match=r"input train cannot be sent.*num_workers=0"):
        pickle.dumps(Input(consumer))


# The end of the program.


def test_a_stopped_consumer_raises_and_leaves_the_job_open(sidecar: Sidecar) -> None:
    consumer, trainer, generation = begun(sidecar)
    errors: queue.SimpleQueue[BaseException] = queue.SimpleQueue()

    def read() -> None:
        try:
            next(consumer.units(generation))
        except UnavailableError as error:
            errors.put(error)

    reading = threading.Thread(target=read)
    reading.start()
    open_consumers.stop_all(UnavailableError("the program ends"))
    assert str(errors.get(timeout=SECONDS)) == "the program ends"
    trainer.close()
    while not trainer.received.empty():
        assert not trainer.received.get().HasField("close")
    reading.join(SECONDS)
    with pytest.raises(UnavailableError, match="the program ends"):
        consumer.begin()
