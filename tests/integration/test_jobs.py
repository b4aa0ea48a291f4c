"""Several jobs read one input: each its own epoch and positions, over shared sources."""

from __future__ import annotations

import itertools
import signal
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

import distributed_input
from distributed_input.api.errors import ConfigError, FencedError, UnavailableError
from distributed_input.client.input import FOLDER_ENV, JOB_ENV, Input
from distributed_input.client.reader import InputReader
from testing.integration import reading
from testing.integration.cluster import Cluster, Part, Sidecar, spec
from testing.integration.reading import ids

ROWS, BATCH = 96, 8
SCRAPED = ["--metrics-listen", "127.0.0.1:0"]
FIELDS: dict[str, Any] = {"partitions": 4, "numSplits": 8, "globalBatchSize": BATCH}


def connect(sidecar: Sidecar, job: str, name: str = "rows") -> Input:
    return Input(InputReader(sidecar.shared, name, 20.0, job))


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
        assert first == second  # the order is the input's, not the job's
        assert sorted(first) == list(range(ROWS))
        assert (one.job, two.job, own.job) == ("one", "two", "")
        later = [ids([batch]) for batch in one.numpy()]  # its second epoch, and the other's first
        again = [ids([batch]) for batch in own.numpy()]
        assert list(itertools.chain(*again)) == first
        assert sorted(itertools.chain(*later)) == list(range(ROWS))
        assert later != again


def test_jobs_have_numbers_of_trainers_of_their_own(cluster: Cluster) -> None:
    inputs = {"topology": spec("rows:numbered", {"rows": ROWS}, **FIELDS)}
    alone, pair = cluster.add_sidecars(inputs), cluster.add_sidecars(inputs, 2)

    def read(sidecar: Sidecar, job: str) -> list[list[int]]:
        with connect(sidecar, job, "topology") as data:
            return [ids([batch]) for batch in data.numpy()]

    calls = [(alone[0], "single"), (pair[0], "pair"), (pair[1], "pair")]
    found = reading.at_once([lambda call=call: read(*call) for call in calls])
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


def test_a_second_reader_fences_the_first_of_its_job_alone(
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
    monkeypatch.setenv(FOLDER_ENV, str(sidecar.shared))
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


def test_an_unknown_job_is_told_with_those_in_use(cluster: Cluster) -> None:
    """The trainer's dataset comes with consumer 0, and nobody is consumer 0 of this job."""
    second = cluster.add_sidecars({"brought": spec(timeoutSeconds=2)}, 2, only=1)[0]
    with (
        connect(second, "nobody", "brought") as data,
        pytest.raises(UnavailableError, match=r"job brought/nobody.*not registered.*in use: "),
    ):
        next(data.numpy())


# Shared sources. A dataset that is slow to make, so that jobs meet.

WIDE: dict[str, Any] = {"rows": 480, "kib": 64, "milliseconds": 2}


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made
        print(made.news())


def counted(worker: Part, name: str) -> float:
    """A metric of a worker."""
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


def test_a_worker_killed_while_jobs_share_costs_none_of_them_a_row(own: Cluster) -> None:
    first, second = own.add_workers(2, *SCRAPED)
    jobs = jobs_of(own, 3)

    def read(data: Input) -> list[int]:
        found = []
        for step, batch in enumerate(data.numpy()):
            found += ids([batch])
            if data is jobs[0] and step == 20:
                assert counted(second, "worker_shared_rows_total") > 0
                first.signal(signal.SIGKILL)
        return found

    found = reading.at_once([lambda data=data: read(data) for data in jobs])
    assert found[0] == found[1] == found[2]
    assert sorted(found[0]) == list(range(WIDE["rows"]))
    assert counted(second, "worker_shared_rows_total") > 0


def test_jobs_that_start_together_cost_little_more_than_one(own: Cluster) -> None:
    (worker,) = own.add_workers(1, *SCRAPED)
    jobs = jobs_of(own, 4)
    found = reading.at_once([lambda data=data: ids(data.numpy()) for data in jobs])
    assert all(sorted(one) == list(range(WIDE["rows"])) for one in found)
    sent = counted(worker, "worker_rows_total")
    made = sent - counted(worker, "worker_shared_rows_total")
    assert sent == 4 * WIDE["rows"]
    assert made <= 1.5 * WIDE["rows"], f"{made:.0f} rows were made of {WIDE['rows']}"
