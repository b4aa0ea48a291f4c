"""Readers of one data rank get equal batches of one pass, or an error that names the ranks.

This module is long because a fixture checks one rule in all of its tests.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast
from unittest.mock import Mock

import pytest

from distributed_input.api.errors import (
    ConfigError,
    FencedError,
    PositionError,
    UnavailableError,
)
from distributed_input.api.files import closed_prefix
from distributed_input.api.proto import trainer_pb2
from distributed_input.api.proto.trainer_pb2 import Rank
from distributed_input.api.protocol import PROTOCOL
from distributed_input.link.errors import Cancelled
from distributed_input.link.trainer.trainer_end import Channel
from distributed_input.sidecar.delivery.outbox import UnitOutbox, failure_message
from distributed_input.sidecar.delivery.shared_outbox import Place, Reader, ReaderStage
from distributed_input.sidecar.inputs import reader_group as module
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import JobSession
from distributed_input.sidecar.inputs.reader_group import ReaderGroup
from distributed_input.sidecar.inputs.session import TrainerSession
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks import pytorch
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, eventually, running


def member(rank: int, readers: int = 2) -> Rank:
    """Return the claim of a process of the only data rank."""
    return Rank(count=1, source="any", requested=True, readers=readers, reader=rank)


def read(reader: Consumer) -> list[bytes]:
    """Return the bytes of the units of an epoch."""
    return [unit.buffers[0].tobytes() for unit in reader.units(reader.begin())]


def group_of(job: JobInput) -> ReaderGroup:
    group = job.sessions.current
    assert isinstance(group, ReaderGroup)
    return group


def fail_pass(group: ReaderGroup, ahead: int = 0) -> None:
    """Let the pass fail, as the error of a worker does. `ahead`: 1 for the epoch read ahead."""
    group._epochs.cancel()
    message = failure_message(UnavailableError("a worker failed"), group._generation + ahead)
    group._outbox.send(message, threading.Event())


def without_pass(group: ReaderGroup) -> list[int]:
    """Return the ranks that wait although no pass gets to them and no timer runs."""
    with group._lock, group._outbox.lock:
        if group._is_closing:
            return []
        run, timer = group._epochs._run, group._timer
        runs = group._outbox.running and run is not None and not run.cancelled
        last = group._epoch + 1 if runs else -1
        waiting = [one for one in group._outbox.readers if one.waits and one.begin.epoch > last]
        return [one.rank for one in waiting if timer is None or not timer.is_alive()]


@pytest.fixture(autouse=True)
def _rule(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Check after each start and each removal that no reader waits for nothing."""
    lost: list[list[int]] = []

    def checked(method: Callable[..., None]) -> Callable[..., None]:
        def call(group: ReaderGroup, *args: Any, **kwargs: Any) -> None:
            with group._lock:
                method(group, *args, **kwargs)
                lost.append(without_pass(group))

        return call

    for name in ("start", "remove"):
        monkeypatch.setattr(ReaderGroup, name, checked(getattr(ReaderGroup, name)))
    yield
    assert not any(lost)


def test_readers_get_equal_units_that_are_fetched_once(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(epochs=4)
        readers = [system.connect(rank=member(rank)) for rank in (4, 5)]
        for _ in range(4):
            with ThreadPoolExecutor(2) as pool:
                first, second = pool.map(read, readers)
            assert first == second
            assert len(first) == ROWS // BATCH
        eventually(lambda: job.sessions.stats().rows == 4 * ROWS)
        assert job.sessions.stats().batches == 4 * ROWS // BATCH
        assert job.streams.bytes == 4 * ROWS * 8, "the workers have sent each row once"
        readers[0].close()
        assert not job.sessions.is_idle
        readers[1].close()
        eventually(lambda: job.sessions.is_idle and job.slots.used == 0)
        assert job.sessions.stats().rows == 4 * ROWS


def test_a_reader_that_returns_continues_at_its_position(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar(epochs=1)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [one.units(one.begin()) for one in readers]
        found = [[next(units).buffers[0].tobytes() for _ in range(3)] for units in passes]
        position = readers[1].position()
        found[0].append(next(passes[0]).buffers[0].tobytes())
        readers[1].stop(UnavailableError("the process has ended"))  # it does not connect again
        readers[1]._session.channel._socket.close()
        again = system.connect(rank=member(1))
        again.restore(position)
        rest = read(again)
        found[0] += [unit.buffers[0].tobytes() for unit in passes[0]]
        assert found[0] == found[1] + rest
        assert len(found[0]) == ROWS // BATCH
        for one in (*readers, again):
            one.close()


def test_the_others_read_on_if_one_has_ended(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(epochs=4)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, readers))
        assert len(read(readers[0])) == ROWS // BATCH
        third = readers[0].units(readers[0].begin())  # the other one has not started the second
        group = job.sessions.current
        assert isinstance(group, ReaderGroup)
        eventually(lambda: group._outbox.readers[0].begin.epoch == 2)
        readers[1].close()
        assert sum(1 for _ in third) == ROWS // BATCH
        assert len(read(readers[0])) == ROWS // BATCH
        readers[0].close()


def test_the_next_sidecar_does_not_wait_for_readers_that_have_closed(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar(epochs=3)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, readers))
        readers[1].close()
        assert len(read(readers[0])) == ROWS // BATCH
        system.sidecars[0].close()
        system.add_sidecar(epochs=3)
        assert len(read(readers[0])) == ROWS // BATCH
        readers[0].close()
        eventually(lambda: not list(tmp_path.glob("closed-*")))


def test_a_reader_that_returns_alone_does_not_wait_for_those_that_have_closed(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, readers))
        readers[1].close()
        readers[0].stop(UnavailableError("the process has ended"))
        readers[0]._session.channel._socket.close()
        eventually(lambda: job.sessions.is_idle)
        again = system.connect(rank=member(0))
        assert len(read(again)) == ROWS // BATCH
        again.close()
        eventually(lambda: not list(tmp_path.glob("closed-*")))


def test_a_reader_that_closes_while_no_sidecar_runs_is_found_at_the_deadline(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "timeoutSeconds": 0.5})
        alone = system.connect(rank=member(0))
        group = group_of(job)
        units = alone.units(alone.begin())
        eventually(lambda: group._timer is not None)
        (tmp_path / f"{closed_prefix('train', 0, 2)}1").touch()
        assert len(list(units)) == ROWS // BATCH
        alone.close()


def test_a_reader_that_starts_again_has_not_closed(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        (tmp_path / f"{closed_prefix('train', 0, 2)}1").touch()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        assert group_of(job)._closed.ranks == set()
        readers[1].begin()
        eventually(lambda: not list(tmp_path.glob("closed-*")))
        for one in readers:
            one.close()


def test_nobody_waits_for_a_reader_that_has_got_an_error(tmp_path: Path) -> None:
    """It may have all rows of the epoch, and not start it again."""
    with running(tmp_path) as system:
        system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "timeoutSeconds": 0.5})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with pytest.raises(UnavailableError):
            read(readers[1])
        assert len(read(readers[0])) == ROWS // BATCH
        for one in readers:
            one.close()


def test_a_reader_waits_for_the_others_and_the_error_names_them(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "timeoutSeconds": 0.5})
        alone = system.connect(rank=member(3))
        with pytest.raises(
            UnavailableError,
            match=r"rank 3 has waited .* for 1 more reader\(s\) to connect \(data rank 0 of 1",
        ):
            read(alone)
        assert job.sessions.stats().waiting_for == ""
        late = system.connect(rank=member(2))
        alone.begin()
        group = job.sessions.current
        assert isinstance(group, ReaderGroup)
        eventually(lambda: "rank 2, to start the epoch" in job.sessions.stats().waiting_for)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda one: list(one.units()), (alone, late))
        assert len(first) == len(second) == ROWS // BATCH
        for one in (alone, late):
            one.close()


def test_readers_that_disagree_are_refused(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with pytest.raises(
            ConfigError, match=r"rank 2 is one more reader of data rank 0 of 1 .* ranks 0, 1\. Pass"
        ):
            system.connect(rank=member(2))
        for claim, claims in ((None, 1), (member(0, readers=4), 4)):
            with pytest.raises(
                ConfigError, match=f"by 2 process.* claims {claims}: pass the same data_size"
            ):
                system.connect(rank=claim)
        with pytest.raises(
            ConfigError, match=r"rank 1 opens .* while rank 0 has it open: .* cannot change"
        ):
            readers[1].open(readers[1].welcome.config, b"", 2)
        readers[1].close()
        with pytest.raises(
            ConfigError, match=r"rank 1 reads data rank 0 .* another way than rank 0"
        ):
            system.connect(rank=member(1), replicas=2)
        readers[0].close()


def test_a_reader_gets_reports_while_another_one_opens_the_job(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_REPORT_SECONDS", 0.01)
    with running(tmp_path) as system:
        job = system.add_sidecar()
        reader = system.connect(rank=member(0))
        group = group_of(job)
        reports: list[str] = []

        def report(what: str) -> None:
            reports.append(what)
            if len(reports) == 2:
                group._opening.release()

        group._opening.acquire()
        group.open(group._members[0], trainer_pb2.Open(draft=job.config), b"", report)
        assert reports == ["another rank of data rank 0 of 1, which opens the job"] * 2
        reader.close()


def test_a_second_process_of_a_rank_fences_the_first_alone(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        other, older = (system.connect(rank=member(rank)) for rank in range(2))
        newer = system.connect(rank=member(1))
        with pytest.raises(FencedError):
            read(older)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(read, (other, newer))
        assert first == second
        for one in (other, older, newer):
            one.close()


def test_a_message_of_an_ended_process_does_not_fence_its_successor(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        ended = Channel(tmp_path, 5.0)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        ended.send(hello=trainer_pb2.Hello(protocol=PROTOCOL, input="train", rank=member(1)))
        answer = ended.receive(10.0)
        assert answer is not None
        assert answer.failure.kind == "FencedError"
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(read, readers)
        assert first == second
        for one in readers:
            one.close()


def test_a_session_that_connected_before_a_group_ended_gets_the_current_one(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        registry = system.registries[0]
        late, early = (cast(JobSession, SimpleNamespace(number=number)) for number in (9, 3))
        registry.join("train", "", late, 0, 2).is_over = True
        group = registry.join("train", "", early, 0, 2)
        assert not group.is_over
        assert job.sessions.current is group


def test_a_refused_position_leaves_the_others_with_an_error_that_names_the_ranks(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        for step, one in enumerate(readers, 1):
            position = one.position()
            position.consumers, position.step = 2, step
            one.restore(position)
        waiting = readers[0].begin()
        eventually(lambda: group_of(job)._outbox.readers)
        with pytest.raises(PositionError, match=r"rank 1 and rank 0 .* different positions"):
            read(readers[1])
        group = group_of(job)
        eventually(lambda: len(group._members) == 1)
        assert group._timer is not None
        group._give_up(group._timer)
        with pytest.raises(UnavailableError, match=r"rank 0 has waited .* 1 more reader"):
            list(readers[0].units(waiting))
        readers[0].close()


def test_positions_of_a_mixture_with_other_weights_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    compared: list[tuple[int, int]] = []

    def are_of_one_sequence(
        one: trainer_pb2.Position, other: trainer_pb2.Position, _: object
    ) -> bool:
        compared.append((one.step, other.step))
        return one.step == other.step

    monkeypatch.setattr(module, "are_of_one_sequence", are_of_one_sequence)
    with running(tmp_path) as system:
        job = system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        position = readers[0].position()
        position.step = 2
        readers[0].restore(position)
        readers[0].begin()
        eventually(lambda: group_of(job)._outbox.readers)
        group, second = group_of(job), Reader(1, cast("Any", None))
        assert group._source is not None
        group._check_position(second, Place(0, 2), None)
        assert compared == [], "the job is no mixture"
        group._source.job.sources.add()
        group._check_position(second, Place(1, 0), None)
        assert compared == [], "positions of other epochs are not compared"
        with pytest.raises(PositionError, match=r"rank 1 and rank 0 .* restore all ranks from the"):
            group._check_position(second, Place(0, 2), None)
        group._outbox.readers[0].stage = ReaderStage.ENDED
        group._check_position(second, Place(1, 0), None)
        assert compared == [(2, 0), (0, 0)]
        for one in readers:
            one.close()


@pytest.mark.parametrize("first", [0, 1])
def test_the_start_of_an_epoch_is_the_same_for_any_number_of_consumers(
    tmp_path: Path, first: int
) -> None:
    """A trainer that has read nothing since a restore starts the epoch in the next sidecar."""
    with running(tmp_path) as system:
        job = system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        position = readers[0].position()
        position.consumers = 2
        readers[0].restore(position)
        group, order = group_of(job), [readers[first], readers[1 - first]]
        passes = []
        for number, one in enumerate(order, 1):
            passes.append(one.units(one.begin()))
            eventually(lambda count=number: len(group._outbox.readers) == count)
        found = [[unit.buffers[0].tobytes() for unit in units] for units in passes]
        assert found[0] == found[1]
        assert len(found[0]) == ROWS // BATCH
        for one in readers:
            one.close()


def test_a_position_that_one_reader_cannot_restore_does_not_stop_the_other(
    tmp_path: Path,
) -> None:
    with running(tmp_path) as system:
        system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [one.units(one.begin()) for one in readers]
        for units in passes:
            next(units)
        position = readers[1].position()
        position.job = "another"
        start = trainer_pb2.StartEpoch(generation=9, position=position)
        readers[1]._session.channel.send(start=start)
        assert sum(1 for _ in passes[0]) == ROWS // BATCH - 1
        for one in readers:
            one.close()


def test_all_that_wait_get_the_error_of_a_pass(tmp_path: Path) -> None:
    with running(tmp_path, 8000) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 16, "timeoutSeconds": 20})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [one.units(one.begin()) for one in readers]
        kept = [next(units) for units in passes]
        passes[0] = readers[0].units(readers[0].begin())  # of the next epoch
        group = group_of(job)
        eventually(lambda: group._outbox.readers[0].begin.epoch == 1)
        fail_pass(group)
        assert not without_pass(group)
        for units in passes:
            with pytest.raises(UnavailableError, match="a worker failed"):
                list(units)
        del kept
        for one in readers:
            one.close()


def test_an_error_ahead_of_time_comes_with_the_epoch_and_no_unit_comes_again(
    tmp_path: Path,
) -> None:
    with running(tmp_path, 8000) as system:
        job = system.add_sidecar(epochs=2, sidecar={"bufferBytes": 1 << 14, "timeoutSeconds": 20})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, readers))
        group = group_of(job)
        eventually(lambda: all(one.begin.epoch == 1 and one.sent for one in group._outbox.readers))
        fail_pass(group, ahead=1)
        sent = [one.sent for one in group._outbox.readers]
        found: list[list[bytes]] = [[], []]
        for one, units in zip(readers, found, strict=True):
            with pytest.raises(UnavailableError, match="a worker failed"):
                units.extend(unit.buffers[0].tobytes() for unit in one.units(one.begin()))
        assert [one.sent for one in group._outbox.readers] == sent
        with ThreadPoolExecutor(2) as pool:
            for units, rest in zip(found, pool.map(read, readers), strict=True):
                units += rest
        assert found[0] == found[1]
        assert len(found[0]) == 8000 // BATCH
        for one in readers:
            one.close()


def test_what_a_cancelled_pass_has_kept_back_is_sent_without_a_pass(tmp_path: Path) -> None:
    with running(tmp_path, 8000) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 14, "timeoutSeconds": 20})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [one.units(one.begin()) for one in readers]
        for units in passes:
            next(units)
        group, cancelled = group_of(job), threading.Event()
        group._epochs.cancel()
        cancelled.set()
        message = failure_message(UnavailableError("a worker failed"), group._generation)
        with pytest.raises(Cancelled):
            group._outbox.send(message, cancelled)
        with group._lock:
            group._settle()
        for units in passes:
            with pytest.raises(UnavailableError, match="a worker failed"):
                list(units)
        for one in readers:
            one.close()


def test_a_pass_that_skips_the_rest_of_an_epoch_has_left_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reader that comes back there needs another pass, also before the next unit is sent."""
    with running(tmp_path, 8000) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 14, "timeoutSeconds": 20})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        for units in [one.units(one.begin()) for one in readers]:
            next(units)
        group = group_of(job)
        readers[1].begin()
        eventually(lambda: group._outbox.readers[1].begin.epoch == 1)
        assert group._outbox.next.epoch == 0
        monkeypatch.setattr(group._outbox, "send_unit", Mock(side_effect=Cancelled))
        readers[0].close()
        eventually(lambda: len(group._members) == 1)
        with group._lock:
            assert group._outbox.next.epoch == 1
        readers[1].close()


def test_a_reader_that_is_an_epoch_behind_is_named(tmp_path: Path) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(epochs=4, sidecar={"bufferBytes": 1 << 20, "timeoutSeconds": 0.5})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        with ThreadPoolExecutor(2) as pool:
            list(pool.map(read, readers))
        read(readers[0])
        with pytest.raises(UnavailableError, match=r"rank 0 has waited .* for rank 1, to start"):
            read(readers[0])
        assert len(read(readers[1])) == ROWS // BATCH
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(read, readers)
        assert first == second
        assert len(first) == ROWS // BATCH
        assert "readers" not in job.streams.waiting
        for one in readers:
            one.close()


def test_a_reader_that_is_ahead_does_not_stop_the_end_of_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(epochs=2)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        group, send, ends = group_of(job), UnitOutbox.send, dict[UnitOutbox, bool]()

        def send_late(outbox: UnitOutbox, message: Any, cancelled: threading.Event) -> None:
            """Send the second end only once the reader that has the first is in the next epoch."""
            if message.HasField("end"):
                for one in group._outbox.readers if len(ends) == 1 else ():
                    if one.outbox in ends:
                        eventually(lambda one=one: one.started and one.begin.epoch == 1)
                ends[outbox] = cancelled.is_set()
            send(outbox, message, cancelled)

        monkeypatch.setattr(UnitOutbox, "send", send_late)
        with ThreadPoolExecutor(2) as pool:
            first, second = pool.map(lambda one: [read(one), read(one)], readers)
        assert first == second
        assert not any(ends.values()), "the pass was not begun again"
        assert job.streams.bytes == 2 * ROWS * 8
        for one in readers:
            one.close()


def test_what_a_reader_writes_to_a_tensor_stays_in_its_process(tmp_path: Path) -> None:
    torch: Any = SimpleNamespace(from_numpy=lambda array: array)
    with running(tmp_path) as system:
        system.add_sidecar()
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [pytorch.reader(torch, one)(one.begin()) for one in readers]
        first, second = (next(units)["id"] for units in passes)
        before = second.copy()
        first += 1000
        assert second.tolist() == before.tolist()
        second += 1
        plain = [next(one.arrays(one.generation))["id"] for one in readers]
        assert plain[0].tolist() == plain[1].tolist()
        assert not plain[0].flags.writeable
        for one in readers:
            one.close()


def test_a_process_that_is_replaced_while_it_opens_the_job_has_it_not_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise its successor could never open another job."""
    with running(tmp_path) as system:
        job = system.add_sidecar()
        session = Mock(number=1)
        group = ReaderGroup(job, 2, 1)
        older = group.join(session, Mock(closed=threading.Event()), 0)
        assert older is not None
        open_job = job.open_job

        def slow(*args: Any) -> Any:
            newer = group.join(Mock(number=2), Mock(closed=threading.Event()), 0)
            assert newer is not None
            return open_job(*args)

        monkeypatch.setattr(job, "open_job", slow)
        older.open(trainer_pb2.Open(), b"", lambda _: None)
        assert not group._open_members


def test_a_process_that_has_gone_does_not_open_the_job(tmp_path: Path) -> None:
    """It may have waited until another one had opened it, and the sidecar may stop."""
    with running(tmp_path) as system:
        job = system.add_sidecar()
        group = ReaderGroup(job, 2, 1)
        reading = group.join(Mock(number=1), Mock(closed=threading.Event()), 0)
        assert reading is not None
        group.remove(reading, closed=False)
        with pytest.raises(Cancelled):
            reading.open(trainer_pb2.Open(draft=job.config), b"", lambda _: None)
        assert group._request is None


def test_a_process_that_is_being_replaced_does_not_count_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as system:
        group = ReaderGroup(system.add_sidecar(), 2, 1)
        remove, joined = group.remove, []

        def slow(*args: Any, **kwargs: Any) -> None:
            joined.append(group.join(Mock(number=3), Mock(closed=threading.Event()), 1))
            remove(*args, **kwargs)

        monkeypatch.setattr(group, "remove", slow)
        for number in (1, 2):
            group.join(Mock(number=number), Mock(closed=threading.Event()), 0)
        assert [one.reader.rank for one in group._members] == [0, 1]
        assert joined == group._members[1:]


def test_a_sidecar_that_stops_ends_the_pass_before_it_releases_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise the pass writes to slots that processes hold: they read on in the next sidecar."""
    with running(tmp_path) as system:
        job = system.add_sidecar(epochs=2)
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        readers[0].begin()
        read(readers[1])
        readers[1].begin()  # without the other one, the pass would go on here
        group, close = group_of(job), TrainerSession.close
        ahead = group._outbox.readers[1]
        eventually(lambda: ahead.begin.epoch == 1 and ahead.started)
        reading, run = group._members[0], group._epochs._run
        assert run is not None
        cancelled: list[bool] = []

        def recorded(session: TrainerSession) -> None:
            cancelled.append(run.cancelled)
            close(session)

        monkeypatch.setattr(TrainerSession, "close", recorded)
        group.close()
        assert len(cancelled) >= 2
        assert all(cancelled)
        with pytest.raises(Cancelled):
            reading.start(trainer_pb2.StartEpoch(generation=9))
        with pytest.raises(Cancelled):
            group.join(Mock(number=9), Mock(closed=threading.Event()), 0)
        for one in readers:
            one.close()


def test_a_late_error_is_of_the_epoch_that_the_reader_has_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with running(tmp_path) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 20, "timeoutSeconds": 20})
        reader = system.connect(rank=member(0))
        generation = reader.begin()
        group = group_of(job)
        eventually(lambda: group._timer is not None)
        sent: list[int] = []
        (one,) = group._members

        def late(message: trainer_pb2.FromSidecar, _cancelled: threading.Event) -> None:
            one.reader.start(generation + 1, one.reader.begin)  # the process iterates again
            sent.append(message.failure.generation)

        monkeypatch.setattr(one.outbox, "send", late)
        assert group._timer is not None
        group._give_up(group._timer)
        assert sent == [generation]
        reader.close()


def test_no_pass_begins_if_the_one_before_has_failed_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may send the error until it is cancelled. Then no reader needs units."""
    with running(tmp_path, 8000) as system:
        job = system.add_sidecar(sidecar={"bufferBytes": 1 << 14, "timeoutSeconds": 20})
        readers = [system.connect(rank=member(rank)) for rank in range(2)]
        passes = [one.units(one.begin()) for one in readers]
        for units in passes:
            next(units)
        group = group_of(job)
        cancel = group._epochs.cancel

        def late() -> None:
            monkeypatch.setattr(group._epochs, "cancel", cancel)
            fail_pass(group)

        monkeypatch.setattr(group._epochs, "cancel", late)
        with group._lock:
            group._begin()
            assert not group._outbox.running
        for units in passes:
            with pytest.raises(UnavailableError, match="a worker failed"):
                list(units)
        for one in readers:
            one.close()
