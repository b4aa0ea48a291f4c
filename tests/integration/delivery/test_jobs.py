"""Several jobs read one input: each has its own epochs and positions, and they share rows."""

from __future__ import annotations

import itertools
import os
import signal
import time
import urllib.request
from collections.abc import Callable
from typing import Any

import pytest

import distributed_input
from distributed_input.api.environment import DIR_ENV, JOB_ENV
from distributed_input.api.errors import ConfigError, FencedError, UnavailableError
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, Part, Sidecar, spec
from testing.integration.readers import ids

ROWS, BATCH = 96, 8
METRICS_FLAGS = ["--metrics-listen", "127.0.0.1:0"]
FIELDS: dict[str, Any] = {"partitions": 4, "numSplits": 8, "globalBatchSize": BATCH}


def connect(sidecar: Sidecar, job: str, name: str = "rows") -> Input:
    return Input(Consumer(sidecar.shared, name, 20.0, job))


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    inputs = {"rows": spec("rows:shuffled", {"rows": ROWS, "global_batch": BATCH}, **FIELDS)}
    return shared.add_sidecars(inputs)[0]


def test_two_jobs_read_side_by_side_in_one_process(cluster: Cluster, sidecar: Sidecar) -> None:
    with (
        connect(sidecar, "one") as one,
        connect(sidecar, "two") as two,
        connect(sidecar, "") as own,
    ):
        first, second = [], []
        for a, b in zip(one.numpy(), two.numpy(), strict=True):
            first += ids([a])
            second += ids([b])
        assert first == second  # the order belongs to the input
        assert sorted(first) == list(range(ROWS))
        assert (one.job, two.job, own.job) == ("one", "two", "")
        later = [
            ids([batch]) for batch in one.numpy()
        ]  # the second epoch of one, the first of the other
        first_epoch = [ids([batch]) for batch in own.numpy()]
        assert list(itertools.chain(*first_epoch)) == first
        assert sorted(itertools.chain(*later)) == list(range(ROWS))
        assert later != first_epoch


def test_jobs_may_have_different_numbers_of_trainers(cluster: Cluster) -> None:
    inputs = {"topology": spec("rows:numbered", {"rows": ROWS}, **FIELDS)}
    alone, pair = cluster.add_sidecars(inputs), cluster.add_sidecars(inputs, 2)

    def read(sidecar: Sidecar, job: str) -> list[list[int]]:
        with connect(sidecar, job, "topology") as data:
            return [ids([batch]) for batch in data.numpy()]

    calls = [(alone[0], "single"), (pair[0], "pair"), (pair[1], "pair")]
    found = readers.run_concurrently([lambda call=call: read(*call) for call in calls])
    steps = [sorted(a + b) for a, b in zip(found[1], found[2], strict=True)]
    assert steps == [sorted(step) for step in found[0]]
    assert sorted(itertools.chain(*steps)) == list(range(ROWS))


def test_a_checkpoint_of_one_job_starts_another(cluster: Cluster, sidecar: Sidecar) -> None:
    with connect(sidecar, "base") as base:
        batches = base.numpy()
        before = [ids([next(batches)]) for _ in range(5)]
        position = base.position()
        rest = [ids([batch]) for batch in batches]
    with connect(sidecar, "fork") as fork:
        fork.restore(position)
        assert [ids([batch]) for batch in fork.numpy()] == rest
    assert sorted(itertools.chain(*before, *rest)) == list(range(ROWS))


def test_a_second_reader_fences_only_the_first_reader_of_its_job(
    cluster: Cluster, sidecar: Sidecar
) -> None:
    with connect(sidecar, "fenced") as first, connect(sidecar, "other") as other:
        running, beside = first.numpy(), other.numpy()
        next(running), next(beside)
        with connect(sidecar, "fenced") as second:
            with pytest.raises(FencedError, match="a job of its own"):
                list(running)
            assert sorted(ids(second.numpy())) == list(range(ROWS))
        assert len(list(beside)) == ROWS // BATCH - 1


def test_the_environment_names_the_job(
    cluster: Cluster, sidecar: Sidecar, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(DIR_ENV, str(sidecar.shared))
    monkeypatch.setenv(JOB_ENV, "sweep-3")
    with distributed_input.connect("rows") as data:
        assert data.job == "sweep-3"
        next(data.numpy())
        assert "rows/sweep-3" in {job.name for job in cluster.status().jobs}
    with distributed_input.connect("rows", job="mine") as data:
        assert data.job == "mine"
    for bad in ("a/b", "-a", "a" * 64, "a b"):
        with pytest.raises(ConfigError, match="1 to 63 letters"):
            distributed_input.connect("rows", job=bad)


def test_an_unknown_job_is_an_error_with_the_known_jobs(cluster: Cluster) -> None:
    """Consumer 0 provides the trainer's dataset, and this job has no consumer 0."""
    second = cluster.add_sidecars({"brought": spec(timeoutSeconds=2)}, 2, only=1)[0]
    with (
        connect(second, "nobody", "brought") as data,
        pytest.raises(UnavailableError, match=r"job brought/nobody.*not registered.*in use: "),
    ):
        next(data.numpy())


# Closed jobs.


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def as_arrays(data: Input) -> list[int]:
    return ids(data.numpy())


def as_tensors(data: Input) -> list[int]:
    return ids({"id": batch["id"].numpy()} for batch in data.dataset())


@pytest.mark.parametrize("read", [as_arrays, as_tensors])
def test_a_closed_job_releases_its_buffer_and_its_threads(
    cluster: Cluster, read: Callable[[Input], list[int]]
) -> None:
    """More jobs than a sidecar serves at once, and the trainer keeps a reference to each."""
    name = f"released-{read.__name__}"
    inputs = {name: spec("rows:numbered", {"rows": ROWS}, buffer="4Mi", **FIELDS)}
    (sidecar,) = cluster.add_sidecars(inputs)

    def threads() -> int:
        return len(os.listdir(f"/proc/{sidecar.pid}/task"))

    kept, before = [], 0
    for number in range(10):
        with connect(sidecar, f"job-{number}", name) as data:
            assert sorted(read(data)) == list(range(ROWS))
        kept.append(data)
        eventually(lambda: len(list(sidecar.shared.glob("slots-*"))) == 1)
        before = before or threads()
    eventually(lambda: threads() <= before)
    eventually(lambda: not any(job.name.startswith(f"{name}/") for job in cluster.status().jobs))


def test_batches_of_a_closed_job_stay_valid_until_they_are_dropped(cluster: Cluster) -> None:
    inputs = {"held": spec("wide:wide", {"rows": ROWS, "width": 1 << 16}, buffer="8Mi", **FIELDS)}
    (sidecar,) = cluster.add_sidecars(inputs)
    held, expected = [], []
    for number in range(9):
        with connect(sidecar, f"job-{number}", "held") as data:
            batches = data.numpy()
            next(batches)
            held.append(next(batches)["bytes"])
            expected.append(held[-1].copy())
            del batches
    eventually(lambda: len(list(sidecar.shared.glob("slots-*"))) == 1)
    for array, copy in zip(held, expected, strict=True):
        assert (array == copy).all()


# Shared rows. The dataset is slow, so that the jobs share streams.

WIDE: dict[str, Any] = {"rows": 480, "kib": 64, "milliseconds": 2}


def metric_of(worker: Part, name: str) -> float:
    """Return a metric of a worker."""
    address = worker.wait_ready()["metrics"]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as answer:
        for line in answer.read().decode().splitlines():
            if line.startswith(f"distributed_input_{name} "):
                return float(line.split()[1])
    raise AssertionError(f"no metric {name}")


def jobs_of(cluster: Cluster, count: int) -> list[Input]:
    fields = {"partitions": 4, "numSplits": 16, "globalBatchSize": 8, "buffer": "4Mi", "epochs": 1}
    inputs = {"rows": spec("wide:slow", WIDE, **fields)}
    return [connect(cluster.add_sidecars(inputs)[0], f"job-{number}") for number in range(count)]


def test_no_job_loses_a_row_if_a_worker_is_killed_while_they_share(own_cluster: Cluster) -> None:
    first, second = own_cluster.add_workers(2, *METRICS_FLAGS)
    jobs = jobs_of(own_cluster, 3)

    def read(data: Input) -> list[int]:
        found = []
        for step, batch in enumerate(data.numpy()):
            found += ids([batch])
            if data is jobs[0] and step == 20:
                assert metric_of(second, "worker_shared_rows_total") > 0
                first.signal(signal.SIGKILL)
        return found

    found = readers.run_concurrently([lambda data=data: read(data) for data in jobs])
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == list(range(WIDE["rows"]))
    assert metric_of(second, "worker_shared_rows_total") > 0


def test_jobs_that_start_together_share_nearly_all_rows(own_cluster: Cluster) -> None:
    (worker,) = own_cluster.add_workers(1, *METRICS_FLAGS)
    jobs = jobs_of(own_cluster, 4)
    found = readers.run_concurrently([lambda data=data: ids(data.numpy()) for data in jobs])
    assert all(sorted(one) == list(range(WIDE["rows"])) for one in found)
    sent = metric_of(worker, "worker_rows_total")
    computed = sent - metric_of(worker, "worker_shared_rows_total")
    assert sent == 4 * WIDE["rows"]
    assert computed <= 1.5 * WIDE["rows"], f"{computed:.0f} rows were computed of {WIDE['rows']}"
