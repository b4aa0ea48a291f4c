"""Workers that cannot be had: a clear error in time, which can be tried again; no silent hang."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from distributed_input.api.errors import RetryableError, UnavailableError
from testing.integration import reading
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.reading import connect, ids

TIMEOUT = 3
"""Seconds that the resource gives, `spec.sidecar.timeoutSeconds`."""
SLACK = 8
"""Seconds that an error may come later, on a machine that is busy."""
BATCH = 8


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made
        print(made.news())


def slow(rows: int, milliseconds: float, **fields: Any) -> Any:
    """An input whose rows take so long each to make."""
    args = {"rows": rows, "kib": 1, "milliseconds": milliseconds}
    common = {"partitions": 1, "numSplits": 1, "timeoutSeconds": TIMEOUT, "globalBatchSize": BATCH}
    return spec("wide:slow", args, **{**common, **fields})


def waits_for(cluster: Cluster) -> str:
    """What `distributed-input run` and `status` say of the only trainer."""
    (consumer,) = cluster.status().consumers
    return str(consumer.last.waiting_for)


def refused(read: Callable[[], Any], match: str) -> float:
    """Seconds until the trainer got the error that it may try again after."""
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=match) as caught:
        read()
    assert isinstance(caught.value, RetryableError)
    return time.monotonic() - began


def entries(sidecar: Sidecar, message: str) -> list[dict[str, Any]]:
    """What a sidecar has logged of something."""
    lines = sidecar.log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in found if entry.get("message") == message]


def test_a_trainer_that_no_worker_ever_serves_is_told_so(own: Cluster) -> None:
    (sidecar,) = own.add_sidecars({"train": slow(40, 0)})
    with connect(sidecar) as data:
        took = refused(
            lambda: next(data.numpy()),
            rf"for {TIMEOUT} s \(spec\.sidecar\.timeoutSeconds\).* Check that the workers are run",
        )
        assert TIMEOUT <= took < TIMEOUT + SLACK
        own.add_workers(1)
        assert sorted(ids(data.numpy())) == list(range(40))


def test_what_a_trainer_waits_for_is_told_while_it_waits(own: Cluster) -> None:
    (worker,) = own.add_workers(1)
    (sidecar,) = own.add_sidecars({"train": slow(200, 5, timeoutSeconds=60)})
    with connect(sidecar) as data, ThreadPoolExecutor(1) as pool:
        batches = data.numpy()
        found = ids(itertools.islice(batches, 3))
        worker.kill()
        rest = pool.submit(ids, batches)
        deadline = time.monotonic() + 30
        while "a worker" not in waits_for(own):
            assert time.monotonic() < deadline, "nobody says what is waited for"
            time.sleep(0.1)
        own.add_workers(1)
        found += rest.result(reading.SECONDS)
    assert sorted(found) == list(range(200))


def test_a_trainer_that_loses_all_workers_is_told_and_goes_on_with_others(own: Cluster) -> None:
    (worker,) = own.add_workers(1)
    (sidecar,) = own.add_sidecars({"train": slow(200, 5)})
    with connect(sidecar) as data:
        batches = data.numpy()
        found = ids(itertools.islice(batches, 3))
        worker.kill()

        def rest() -> None:
            for batch in batches:
                found.extend(ids([batch]))

        took = refused(rest, rf"for {TIMEOUT} s.*spec\.sidecar\.timeoutSeconds")
        assert took < 2 * TIMEOUT + SLACK  # it had some rows
        assert len(found) < 200
        assert entries(sidecar, "stream broke; opening it again")
        own.add_workers(1)
        found += ids(data.numpy())
    assert sorted(found) == list(range(200))


def test_a_dataset_that_hangs_is_told_in_time(own: Cluster) -> None:
    """Nothing else is wrong: its worker lives."""
    own.add_workers(1)
    one = slow(0, 0)
    one["dataset"] = {"entryPoint": "wide:stuck", "args": {"behind": BATCH}}
    (sidecar,) = own.add_sidecars({"train": one})
    with connect(sidecar) as data:
        batches = data.numpy()
        assert ids([next(batches)]) == list(range(BATCH))
        took = refused(
            lambda: next(batches),
            r"no rows of partition 0 arrived for 3 s \(spec\.sidecar\.timeoutSeconds; split 0, "
            r"requested from worker .*\): the worker is up but its dataset produces nothing",
        )
    assert TIMEOUT - 1 <= took < TIMEOUT + SLACK
    (told, *_) = entries(sidecar, "still waiting")
    assert told["what"] == "rows of partition 0"
    assert re.search("split 0, requested from worker .*: silent", told["sources"][0])


AGAIN = 2 * TIMEOUT
"""Seconds that a replay takes."""


@pytest.mark.parametrize("sizes", [[400], [400, 60]], ids=["alone", "beside one with fewer rows"])
def test_a_replay_that_takes_longer_than_any_wait_is_no_hang(
    own: Cluster, sizes: list[int]
) -> None:
    """Nor for another trainer, which waits to hear whether there are more steps."""
    milliseconds, trainers = 20, len(sizes)
    workers = {part.address: part for part in own.add_workers(2)}
    fields = {"partitions": trainers, "numSplits": trainers, "readAhead": 0, "epochs": 1}
    one = slow(0, 0, **fields)
    args = {"sizes": sizes, "milliseconds": milliseconds}
    one["dataset"] = {"entryPoint": "wide:slow_splits", "args": args}
    sidecars = own.add_sidecars({"train": one}, trainers)
    late = threading.Event()

    def read(sidecar: Sidecar) -> list[int]:
        found: list[int] = []
        with connect(sidecar) as data:
            for batch in data.numpy():
                found += ids([batch])
                if len(found) * milliseconds >= 1000 * AGAIN:
                    late.set()
        return found

    def kill() -> list[int]:
        assert late.wait(reading.SECONDS)
        (busy,) = (worker for worker in own.status().workers if worker.open_streams)
        workers[busy.address].kill()
        return []

    found = reading.at_once([*(lambda s=s: read(s) for s in sidecars), kill])
    assert sorted(itertools.chain(*found)) == list(range(sum(sizes)))
    told = [entry["what"] for sidecar in sidecars for entry in entries(sidecar, "still waiting")]
    assert any("workers have replayed" in what for what in told)
    assert trainers == 1 or any("the other trainers' end" in what for what in told)


MANY = 300


def test_one_worker_serves_hundreds_of_partitions(own: Cluster) -> None:
    """All of which it has to have open at once: a step needs a row of each, and none ends soon."""
    own.add_workers(1, "--parallelism", "64")
    fields = {"partitions": MANY, "numSplits": MANY, "globalBatchSize": MANY}
    (sidecar,) = own.add_sidecars({"train": slow(2000 * MANY, 20, timeoutSeconds=60, **fields)})
    with connect(sidecar) as data:
        steps = [ids([batch]) for batch in itertools.islice(data.numpy(), 3)]
    assert [len(step) for step in steps] == [MANY] * 3
    assert len(set(itertools.chain(*steps))) == 3 * MANY


def test_more_partitions_than_workers_have_streams_for_are_told_with_the_remedy(
    own: Cluster,
) -> None:
    own.add_workers(1, "--max-streams", "4")
    (sidecar,) = own.add_sidecars({"train": slow(800, 20, partitions=8, numSplits=8)})
    with connect(sidecar) as data:
        refused(
            lambda: next(data.numpy()),
            r"4 streams open \(--max-streams\).*Add workers, or lower spec\.partitions",
        )
