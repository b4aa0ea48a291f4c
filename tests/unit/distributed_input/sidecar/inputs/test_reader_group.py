"""Readers of one data rank get equal batches of one pass, or an error that names the ranks."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, FencedError, UnavailableError
from distributed_input.api.proto.trainer_pb2 import Rank
from distributed_input.sidecar.inputs.reader_group import ReaderGroup
from distributed_input.trainer.consumer import Consumer
from tests.unit.distributed_input.sidecar.system import BATCH, ROWS, eventually, running


def member(rank: int, readers: int = 2) -> Rank:
    """Return the claim of a process of the only data rank."""
    return Rank(count=1, source="any", requested=True, readers=readers, reader=rank)


def read(reader: Consumer) -> list[bytes]:
    """Return the bytes of the units of an epoch."""
    return [unit.buffers[0].tobytes() for unit in reader.units(reader.begin())]


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
        readers[1].close()
        with pytest.raises(
            ConfigError, match=r"rank 1 reads data rank 0 .* another way than rank 0"
        ):
            system.connect(rank=member(1), replicas=2)
        readers[0].close()


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
