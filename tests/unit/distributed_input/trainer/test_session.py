"""A session opens the same job on every sidecar, and raises the failures of its own epochs.

This module is long because each kind of message has its case.
"""

from __future__ import annotations

import contextlib
import hashlib
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    DistributedInputError,
    FencedError,
    ReplayWarning,
    UnavailableError,
)
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.link.trainer.trainer_end import SidecarDisconnected
from distributed_input.trainer import session as session_module
from distributed_input.trainer.session import SidecarSession
from tests.unit.distributed_input.trainer import sidecars
from tests.unit.distributed_input.trainer.sidecars import SECONDS, Sidecar


def opened(folder: Path) -> SidecarSession:
    session = SidecarSession(folder, "", SECONDS)
    session.connect(SECONDS)
    session.define_job(types_pb2.Job(), b"", 1)
    session.open_job()
    session.mark_open()
    return session


def failure(generation: int) -> trainer_pb2.FromSidecar:
    return trainer_pb2.FromSidecar(
        failure={"kind": "DatasetFnError", "message": "bad row", "generation": generation}
    )


def test_the_job_is_open_on_one_channel_at_a_time(tmp_path: Path, sidecar: Sidecar) -> None:
    session = opened(tmp_path)
    assert session.is_open
    assert session.opened.unit_rows == 1
    session.connect(SECONDS)
    assert not session.is_open
    session.start(trainer_pb2.StartEpoch(generation=3))
    assert session.generation == 3, "and it is not sent"
    session.open_job()
    session.resume(trainer_pb2.StartEpoch(generation=4))
    assert session.is_open
    assert session.generation == 4
    sidecar.trainer()
    assert sidecar.trainer().start().generation == 4


def test_the_warnings_about_an_entry_point_are_logged_once(
    tmp_path: Path, sidecar: Sidecar, caplog: pytest.LogCaptureFixture
) -> None:
    sidecar.opened.job.warnings.append("each row is read 32 times")
    opened(tmp_path)
    assert not caplog.messages, "the trainer that sent the dataset has printed them"
    sidecar.opened.job.entry_point.target = "data:rows"
    session = opened(tmp_path)
    session.connect(SECONDS)
    session.open_job()
    session.channel.shutdown()
    assert caplog.messages == ["input train: each row is read 32 times"]


def test_a_rank_of_a_launcher_gets_its_own_remedy(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = opened(tmp_path)
    message = "input train was opened again: one consumer at a time. Use connect(..., job=...)"
    fenced = trainer_pb2.FromSidecar(failure={"kind": "FencedError", "message": message})
    with pytest.raises(FencedError, match=r"job=\.\.\.\)$"):
        session.check_failure(fenced)
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    with pytest.raises(FencedError, match=r"again: one consumer at a time\. This .*rank 1 of 2"):
        session.check_failure(fenced)
    with pytest.raises(DatasetFnError, match=r"^bad row$"):
        session.check_failure(failure(0))


def test_a_requested_rank_needs_a_sidecar_with_ranks(tmp_path: Path, sidecar: Sidecar) -> None:
    rank = trainer_pb2.Rank(index=1, count=2, source="connect(...)", requested=True)
    sidecar.ranks = 0
    with pytest.raises(ConfigError, match=r"^connect\(...\): .* upgrade its image"):
        SidecarSession(tmp_path, "", SECONDS, rank=rank).connect(SECONDS)
    sidecar.ranks = 2
    SidecarSession(tmp_path, "", SECONDS, rank=rank).connect(SECONDS)


def test_a_job_for_each_rank_is_a_warning(
    tmp_path: Path,
    sidecar: Sidecar,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("LOCAL_RANK", "1")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "2")
    opened(tmp_path)
    assert not caplog.messages
    session = SidecarSession(tmp_path, "", SECONDS, "rank-1")
    session.connect(SECONDS)
    session.connect(SECONDS)
    session.channel.shutdown()
    (message,) = caplog.messages
    assert "job rank-1 reads all rows" in message


def test_a_slow_start_is_logged_once_with_what_it_waits_for(
    tmp_path: Path,
    sidecar: Sidecar,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    session = opened(tmp_path)
    trainer = sidecar.trainer()
    session.meter.begin_wait()
    for limit in (3600.0, -1.0):
        assert not caplog.messages
        monkeypatch.setattr(session_module, "_SLOW_START_SECONDS", limit)
        for _ in range(2):
            trainer.send(waiting={"what": "rows of partition 3"})
        trainer.send(failure={"kind": "ConfigError", "message": "end"})
        assert session.receive(time.monotonic() + SECONDS).HasField("failure")
    (message,) = caplog.messages
    assert message.startswith("input train: no batch after 0 s: waiting for rows of partition 3.")


def test_what_the_opening_of_a_job_waits_for_is_logged(
    tmp_path: Path,
    sidecar: Sidecar,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(session_module, "_SLOW_START_SECONDS", 0.0)  # no wait for a batch yet
    sidecar.waiting = "a description"
    opened(tmp_path)
    (message,) = caplog.messages
    assert message.startswith("input train: no batch after 0 s: waiting for a description.")


def test_failures_of_other_epochs_are_ignored(tmp_path: Path, sidecar: Sidecar) -> None:
    session = opened(tmp_path)
    session.start(trainer_pb2.StartEpoch(generation=2))
    session.check_failure(failure(1))
    session.check_failure(failure(3))
    for generation in (0, 2):
        with pytest.raises(DatasetFnError, match="bad row"):
            session.check_failure(failure(generation))


def test_a_difference_is_a_warning_once_per_epoch(tmp_path: Path, sidecar: Sidecar) -> None:
    session = opened(tmp_path)
    trainer = sidecar.trainer()

    def send(generation: int, units: int) -> None:
        difference = {"generation": generation, "message": "split 3 differs"}
        for _ in range(2):  # the second one from a sidecar that resumes the epoch
            trainer.send(difference=difference)
        for index in range(units):
            trainer.unit(generation, index)

    send(1, 1)
    with pytest.warns(ReplayWarning, match="input train: split 3 differs.*determinism") as caught:
        assert session.receive(time.monotonic() + SECONDS).unit.generation == 1
    assert len(caught) == 1
    send(2, 0)
    trainer.end()
    with pytest.warns(ReplayWarning) as caught:
        assert len(list(session.drain())) == 2
    assert len(caught) == 1


def test_a_dataset_is_named_by_its_content(tmp_path: Path) -> None:
    session = SidecarSession(tmp_path, "", SECONDS)
    session.define_job(types_pb2.Job(name="train"), b"graph", 2)
    request = session._open_request
    assert request is not None
    assert request.dataset_id == request.draft.dataset_id == hashlib.sha256(b"graph").hexdigest()
    assert (request.draft.name, request.replicas) == ("train", 2)
    session.define_job(types_pb2.Job(name="train"), b"", 1)
    assert session._open_request == trainer_pb2.Open(draft=types_pb2.Job(name="train"), replicas=1)


def test_a_sidecar_that_cannot_name_rows_is_an_error(tmp_path: Path, sidecar: Sidecar) -> None:
    for asked, refused in ((False, False), (True, True)):
        session = SidecarSession(tmp_path, "", SECONDS, lineage=asked)
        session.connect(SECONDS)
        session.define_job(types_pb2.Job(), b"", 1)
        assert session._open_request == trainer_pb2.Open(
            draft=types_pb2.Job(), replicas=1, lineage=asked
        )
        refusal = pytest.raises(
            ConfigError, match=r"^connect\(lineage=True\): .* upgrade its image"
        )
        with refusal if refused else contextlib.nullcontext():
            session.open_job()
        session.channel.shutdown()


@pytest.mark.parametrize(("reported", "consumers"), [(0, 1), (1, 1), (4, 4)])
def test_the_start_of_an_epoch_names_the_job_and_the_consumer(
    tmp_path: Path, reported: int, consumers: int
) -> None:
    session = SidecarSession(tmp_path, "", SECONDS)
    session.welcome = trainer_pb2.Welcome(consumers=reported, consumer=3)
    job = types_pb2.Job(name="train", partitions=8, global_batch_size=16, seed=7, num_splits=9)
    session.opened = trainer_pb2.Opened(job=job)
    found = session.epoch_start(5)
    assert (found.job, found.epoch, found.partitions) == ("train", 5, 8)
    assert (found.global_batch_size, found.seed, found.num_splits) == (16, 7, 9)
    assert (found.consumers, found.consumer) == (consumers, 3)


def test_deadlines_are_after_the_timeouts_of_both_sides(tmp_path: Path) -> None:
    session = SidecarSession(tmp_path, "", timeout=100.0)
    for seconds in (40.0, 200.0):
        session.welcome = trainer_pb2.Welcome(timeout_seconds=seconds)
        now = time.monotonic()
        assert 0 <= session.reconnect_deadline() - now - max(100.0, seconds) < 5
        assert 0 <= session.answer_deadline() - now - seconds - 30 < 5


def test_a_sidecar_that_sends_nothing_is_an_error_at_the_deadline(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_POLL_SECONDS", 0.01)
    session = opened(tmp_path)
    assert session.generation == 0
    trainer = sidecar.trainer()
    trainer.send(waiting={"what": "rows"})  # moves the deadline by its distance from now
    with pytest.raises(UnavailableError, match="sent nothing in time"):
        session.receive(time.monotonic() + 0.2)
    session.channel.send(start=trainer_pb2.StartEpoch(generation=9))
    received = trainer.received
    first, second = (received.get(timeout=SECONDS) for _ in range(2))
    assert first.progress.waiting, "the wait is reported once in two seconds"
    assert second.start.generation == 9


def test_a_new_sidecar_that_closes_the_connection_is_asked_again_until_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_module, "_CLOSED_SECONDS", 0.05)
    session = SidecarSession(tmp_path, "", SECONDS)
    error = SidecarDisconnected("closed")
    began = time.monotonic()
    session.wait_for_next(began + SECONDS, error)
    assert time.monotonic() - began >= 0.05
    with pytest.raises(UnavailableError, match="keeps closing the connection"):
        session.wait_for_next(time.monotonic() - 1, error)


def test_a_new_connection_reports_waits_at_once(tmp_path: Path, sidecar: Sidecar) -> None:
    session = opened(tmp_path)
    session.meter.waiting(0)
    assert not session.meter.wait_due
    session.connect(SECONDS)
    assert session.meter.wait_due


def test_a_session_that_is_closed_while_it_connects_ends(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    session = SidecarSession(tmp_path, "", SECONDS)
    closing = ConfigError("closed")
    monkeypatch.setattr(session.meter, "restart", lambda: setattr(session, "error", closing))
    with pytest.raises(ConfigError, match="closed"):
        session.connect(SECONDS)
    welcome = session.channel.receive(SECONDS)  # the test's sidecar has sent it
    assert welcome is not None


def test_a_sidecar_of_another_protocol_is_an_error(
    tmp_path: Path, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sidecars, "PROTOCOL", 10_000)
    session = SidecarSession(tmp_path, "", SECONDS)
    with pytest.raises(DistributedInputError, match="protocol"):
        session.connect(SECONDS)


def test_a_report_to_a_sidecar_that_is_gone_is_no_error(tmp_path: Path, sidecar: Sidecar) -> None:
    session = opened(tmp_path)
    sidecar.trainer().close()
    session.report(1, 2)
    session.start(trainer_pb2.StartEpoch(generation=2))
    assert not session.is_open, "the epoch starts on a new connection"


def test_no_sidecar_returns_to_a_removed_folder(tmp_path: Path) -> None:
    folder = tmp_path / "run"
    folder.mkdir()
    first = Sidecar(folder)
    session = opened(folder)
    first.close()
    shutil.rmtree(folder)
    with pytest.raises(UnavailableError, match=r"run that served input train .*local\(FILE\)"):
        session.connect(600.0)
    session.channel.shutdown()


def test_a_sidecar_may_create_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "run"
    started: list[Sidecar] = []

    def start(_seconds: float) -> None:
        folder.mkdir()
        started.append(Sidecar(folder))

    monkeypatch.setattr(session_module.time, "sleep", start)
    session = SidecarSession(folder, "", SECONDS)
    session.connect(SECONDS)
    session.channel.shutdown()
    started[0].close()


@pytest.mark.parametrize("timeout", [60.0, 600.0])
def test_a_folder_that_does_not_exist_is_awaited_for_a_quarter_of_the_timeout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, timeout: float
) -> None:
    now = 0.0

    def sleep(_seconds: float) -> None:
        nonlocal now
        now += 1.0

    clock = SimpleNamespace(monotonic=lambda: now, sleep=sleep)
    monkeypatch.setattr(session_module, "time", clock)
    with pytest.raises(UnavailableError, match=r"folder \S+ does not exist: .*local\(FILE\)"):
        SidecarSession(tmp_path / "run", "", timeout).connect(timeout)
    assert timeout / 4 < now <= timeout / 4 + 1
