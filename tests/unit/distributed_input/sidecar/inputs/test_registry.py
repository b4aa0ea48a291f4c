from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import cast

import pytest

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError
from distributed_input.link.credentials import Credentials
from distributed_input.sidecar.inputs import registry as module
from distributed_input.sidecar.inputs.job_input import JobInput
from distributed_input.sidecar.inputs.job_sessions import JobSession
from distributed_input.sidecar.inputs.ranks import TrainerRanks
from distributed_input.sidecar.inputs.registry import InputRegistry

NO_DISPATCHER = "127.0.0.1:9"


@pytest.fixture
def registry(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[InputRegistry]:
    monkeypatch.setattr(module, "_ROOM_SECONDS", 0.0)
    with closing(started(tmp_path, TrainerRanks())) as one:
        yield one


def started(folder: Path, ranks: TrainerRanks) -> InputRegistry:
    """Return a registry of the inputs train and eval."""
    spec = {"dataset": {"entryPoint": "a:b"}, "sidecar": {"bufferBytes": 1 << 12}}

    def create(name: str, job: str, rank: int) -> JobInput:
        config = InputConfig.from_json(spec)
        return JobInput(name, config, NO_DISPATCHER, Credentials(), folder, ranks, rank, job)

    registry = InputRegistry(create, ["train", "eval"], ranks=ranks)
    registry.start()
    return registry


def attach_reader(job: JobInput) -> None:
    """Make the job look as if a trainer read it."""
    job.sessions._current = cast("JobSession", object())


def detach_reader(job: JobInput) -> None:
    job.sessions._current = None


def test_every_job_has_its_own_name_and_slots(registry: InputRegistry) -> None:
    own, sweep = registry.find("train", ""), registry.find("train", "sweep")
    assert (own.config.name, sweep.config.name) == ("train", "train/sweep")
    assert own.slots.path != sweep.slots.path
    assert registry.find("train", "sweep") is sweep
    assert registry.find("eval", "sweep") is not sweep


def test_every_rank_is_a_consumer_with_its_own_jobs_and_slots(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_JOBS", 2)
    with closing(started(tmp_path, TrainerRanks(trainer=1, trainers=3, each=2))) as registry:
        assert len(registry.all()) == 4  # two inputs
        zero, one = (registry.find("train", "", rank) for rank in range(2))
        assert [(job.consumer, job.consumers) for job in (zero, one)] == [(2, 6), (3, 6)]
        assert [job.link.index for job in (zero, one)] == [2, 3]
        assert zero.slots.path != one.slots.path
        assert zero.link._ranks == 2
        # Jobs of one rank do not count for another one, and are released alone.
        sweeps = [registry.find("train", "sweep", rank) for rank in range(2)]
        assert set(sweeps) <= set(registry.all())
        registry.release(sweeps[0])
        assert sweeps[0] not in registry.all()
        assert registry.find("train", "sweep", 1) is sweeps[1]


def test_the_error_of_an_unknown_input_lists_the_known_ones(registry: InputRegistry) -> None:
    with pytest.raises(ConfigError, match="serves no input 'test'; it serves eval, train"):
        registry.find("test", "")
    with pytest.raises(ConfigError, match=r"connect\(\) needs the name of one"):
        registry.find("", "")
    with pytest.raises(ConfigError, match="1 to 63 letters"):
        registry.find("train", "a/b")


def test_an_idle_job_is_closed_to_make_room_for_another(
    registry: InputRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_JOBS", 3)
    one, two = registry.find("train", "one"), registry.find("train", "two")
    for job in (one, two):
        attach_reader(job)
    with pytest.raises(ConfigError, match="3 jobs of input train are being read"):
        registry.find("train", "three")
    registry.find("eval", "three")  # jobs of another input do not count
    detach_reader(one)
    three = registry.find("train", "three")
    assert not one.slots.path.exists()
    assert registry.find("train", "two") is two
    assert three in registry.all()
    detach_reader(two)


def test_a_job_that_its_trainer_closes_makes_room_at_once(
    registry: InputRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_JOBS", 3)
    for name in ("one", "two", "three", "four"):
        job = registry.find("train", name)
        attach_reader(job)
        detach_reader(job)
        registry.release(job)
        assert not job.slots.path.exists()
        assert job not in registry.all()
        registry.release(job)  # for the second time
    assert len(registry.all()) == 2


def test_another_job_waits_for_one_that_is_being_closed(
    registry: InputRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "_MAX_JOBS", 2)
    monkeypatch.setattr(module, "_ROOM_SECONDS", 30.0)
    one = registry.find("train", "one")
    attach_reader(one)

    def close() -> None:
        detach_reader(one)
        registry.release(one)

    timer = threading.Timer(0.1, close)
    timer.start()
    assert registry.find("train", "two") in registry.all()
    assert one not in registry.all()
    timer.join()


def test_only_a_job_without_a_reader_is_released(registry: InputRegistry) -> None:
    own, read = registry.find("train", ""), registry.find("train", "one")
    attach_reader(read)
    registry.release(own)
    registry.release(read)
    assert {own, read} < set(registry.all())
    assert own.slots.path.exists()
    assert read.slots.path.exists()
    detach_reader(read)


def test_another_job_counts_to_the_memory_limit(
    registry: InputRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    buffers = 2 << 12  # of the two inputs
    monkeypatch.setattr(registry, "_memory_bytes", module.PROCESS_BYTES + buffers + (1 << 12))
    first = registry.find("train", "one")
    attach_reader(first)
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.resources\.limits\.memory"):
        registry.find("train", "two")
    detach_reader(first)
    registry.release(first)
    registry.find("train", "two")


def test_another_job_needs_room_for_its_buffer(
    registry: InputRegistry, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Volume:
        total = 2 << 12

    monkeypatch.setattr("shutil.disk_usage", lambda _: Volume)
    with pytest.raises(ConfigError, match=r"spec\.sidecar\.buffer"):
        registry.find("train", "one")
