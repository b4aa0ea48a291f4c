"""A reader outlives its sidecars, but not an error that is meant for it."""

from __future__ import annotations

import gc
import queue
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    FencedError,
    UnavailableError,
)
from distributed_input.api.proto import types_pb2
from distributed_input.client import session
from distributed_input.client.reader import InputReader
from tests.unit.distributed_input.client.sidecars import SECONDS, Sidecar, Trainer


@pytest.fixture
def sidecar(tmp_path: Path) -> Iterator[Sidecar]:
    made = Sidecar(tmp_path)
    yield made
    made.close()


def opened(folder: Path, timeout: float = SECONDS) -> InputReader:
    reader = InputReader(folder, "", timeout)
    reader.open(types_pb2.Job(), b"", 1)
    return reader


def begun(folder: Path, sidecar: Sidecar) -> tuple[InputReader, Trainer, int]:
    """A reader whose sidecar knows of its epoch."""
    reader = opened(folder)
    trainer = sidecar.trainer()
    generation = reader.begin()
    assert trainer.start().generation == generation
    return reader, trainer, generation


def fail(trainer: Trainer, kind: str) -> None:
    """A sidecar's last word."""
    trainer.say(failure={"kind": kind, "message": "no more"})
    trainer.end()


def watchers() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "sidecar-watch"]


def test_the_next_sidecar_gets_the_position_while_the_loop_computes(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    units = reader.units(generation)
    for index in range(3):
        trainer.unit(generation, index, step=index + 1)
    assert next(units).rows == 1
    sidecar.close()
    trainer.close()
    later = Sidecar(tmp_path, 1)
    start = later.trainer().start()  # and nobody has asked for a batch
    assert (start.generation, start.position.step) == (generation, 3)
    assert [next(units).rows, next(units).rows] == [1, 1], "what had come is still there"
    reader.close()
    later.close()


def test_a_sidecar_that_comes_behind_the_end_hears_of_it_too(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    """Other trainers may still need to know what only it can tell them."""
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.unit(generation, 0, step=1)
    trainer.say(end={"generation": generation, "units": 1})
    assert len(list(reader.units(generation))) == 1
    sidecar.close()
    trainer.close()
    later = Sidecar(tmp_path, 1)
    after = later.trainer()
    assert after.start().position.step == 1
    after.say(end={"generation": generation})  # once more
    assert reader.begin() == generation + 1
    assert after.start().generation == generation + 1
    after.unit(generation + 1, 0, step=1)
    assert next(reader.units(generation + 1)).rows == 1
    reader.close()
    later.close()


def test_what_a_sidecar_had_read_ahead_is_left_to_the_next(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.say(end={"generation": generation})
    assert list(reader.units(generation)) == []
    trainer.unit(generation + 1, 0)  # most likely it is wanted next
    sidecar.close()
    trainer.close()
    later = Sidecar(tmp_path, 1)
    after = later.trainer()
    assert after.start().generation == generation
    assert reader.begin() == generation + 1
    after.unit(generation + 1, 0)
    after.say(end={"generation": generation + 1})
    assert len(list(reader.units(generation + 1))) == 1
    reader.close()
    later.close()


def test_who_is_fenced_off_stays_out(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    channel = reader._session.channel
    trainer.unit(generation, 0, step=1)
    fail(trainer, "FencedError")
    for watcher in watchers():
        watcher.join(SECONDS)
    reader.reconnect_from(channel)
    units = reader.units(generation)
    assert next(units).rows == 1
    for _ in range(2):
        with pytest.raises(FencedError, match="no more"):
            next(reader.units(generation))
        with pytest.raises(FencedError, match="no more"):
            reader.begin()
    with pytest.raises(queue.Empty):
        sidecar.trainers.get_nowait()
    reader.close()


def test_another_error_ends_the_epoch_alone(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    fail(trainer, "ConfigError")
    for _ in range(2):
        with pytest.raises(ConfigError):
            next(reader.units(generation))
    with pytest.raises(queue.Empty):
        sidecar.trainers.get_nowait()
    again = reader.begin()
    ask = threading.Thread(target=lambda: next(reader.units(again)))
    ask.start()
    after = sidecar.trainer()
    assert after.start().generation == again
    after.unit(again, 0, step=1)
    ask.join(SECONDS)
    assert not ask.is_alive()
    reader.close()


def test_a_failure_behind_what_the_loop_took_does_not_end_the_next_epoch(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    """A sidecar reads ahead: it may fail at a row that the loop never wants."""
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.unit(generation, 0, step=1)
    assert next(reader.units(generation)).rows == 1
    failure = {"kind": "DatasetFnError", "message": "row 7 cannot be read"}
    trainer.say(failure={**failure, "generation": generation})
    second = reader.begin()
    assert trainer.start().generation == second
    trainer.unit(second, 0, step=1)
    units = reader.units(second)
    assert next(units).rows == 1
    trainer.say(failure={**failure, "generation": second})
    with pytest.raises(DatasetFnError, match="row 7"):
        next(units)
    reader.begin()
    start = trainer.start()
    # Where the loop was; and the sidecar may have begun another epoch under the next number.
    assert (start.generation, start.position.step) == (second + 2, 1)
    reader.close()


def test_what_the_loop_has_dropped_is_handed_back_and_forgotten(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.unit(generation, 0, step=1)
    assert next(reader.units(generation)).rows == 1
    trainer.unit(generation, 1, step=2)
    second = reader.begin()
    trainer.unit(second, 2)
    units = reader.units(second)
    assert next(units).rows == 1
    position = reader.position()
    assert (position.epoch, position.step) == (1, 1)
    trainer.say(end={"generation": second})
    assert next(units, None) is None
    released: set[int] = set()
    while 64 not in released:
        released.update(trainer.told.get(timeout=SECONDS).release.slots)
    reader.close()


def test_an_end_that_was_not_read_does_not_end_the_next_epoch(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    trainer.unit(generation, 0, step=1)
    trainer.unit(generation, 1, step=2)
    trainer.say(end={"generation": generation, "units": 2})
    sidecar.close()
    trainer.close()
    later = Sidecar(tmp_path, 1)
    after = later.trainer()
    assert after.start().position.step == 2
    second = reader.begin()
    assert after.start().generation == second
    after.unit(second, 0, step=1)
    assert next(reader.units(second)).rows == 1
    reader.close()
    later.close()


def test_where_no_sidecar_comes_the_iterator_is_told_once_waited_for(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    reader._session.timeout = reader.welcome.timeout_seconds = 0.2
    sidecar.close()
    trainer.close()
    for watcher in watchers():
        watcher.join(SECONDS)
    for _ in range(2):
        with pytest.raises(UnavailableError, match="no sidecar"):
            next(reader.units(generation))
    reader.close()


def test_after_a_sidecar_that_refused_the_job_another_is_asked(
    tmp_path: Path, sidecar: Sidecar
) -> None:
    reader, trainer, generation = begun(tmp_path, sidecar)
    sidecar.close()
    trainer.close()
    refusing = Sidecar(tmp_path, 1, refusal="UnavailableError")
    with pytest.raises(UnavailableError, match="no job"):
        next(reader.units(generation))
    refusing.close()
    later = Sidecar(tmp_path, 2)
    again = reader.begin()
    ask = threading.Thread(target=lambda: next(reader.units(again)))
    ask.start()
    after = later.trainer()
    assert after.start().generation == again
    after.unit(again, 0, step=1)
    ask.join(SECONDS)
    assert not ask.is_alive()
    reader.close()
    later.close()


def test_closing_does_not_wait_for_a_sidecar(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, trainer, _ = begun(tmp_path, sidecar)
    sidecar.close()
    trainer.close()
    closing = threading.Thread(target=reader.close)
    closing.start()
    closing.join(SECONDS / 2)
    assert not closing.is_alive()


def test_a_reader_that_is_dropped_lets_go_of_its_sidecar(tmp_path: Path, sidecar: Sidecar) -> None:
    reader, _, _ = begun(tmp_path, sidecar)
    mine = watchers()
    assert mine
    del reader
    gc.collect()
    for watcher in mine:
        watcher.join(SECONDS)
        assert not watcher.is_alive()


def test_a_sidecar_that_tells_what_it_waits_for_is_waited_for(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its own deadline counts, which a replay that goes on puts off; but it must say something."""
    monkeypatch.setattr(session, "_GRACE_SECONDS", 1.5 - SECONDS)
    monkeypatch.setattr(session, "_POLL_SECONDS", 0.1)
    reader, trainer, generation = begun(tmp_path, sidecar)
    units = reader.units(generation)

    def tell() -> None:
        for _ in range(6):
            threading.Event().wait(0.5)
            trainer.say(waiting={"what": "rows of partition 0"})
        trainer.unit(generation, 0, step=1)

    telling = threading.Thread(target=tell)
    telling.start()
    assert next(units).rows == 1
    telling.join(SECONDS)
    with pytest.raises(UnavailableError, match="sent nothing in time"):
        next(units)
    reader.close()
