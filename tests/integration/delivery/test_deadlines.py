"""Without available workers, a trainer gets a clear, retryable error in time and does not hang."""

from __future__ import annotations

import itertools
import json
import re
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from distributed_input.api.errors import (
    DatasetFnError,
    RetryableError,
    SpecError,
    UnavailableError,
)
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.readers import connect, ids

TIMEOUT = 3
"""Timeout of the resource in seconds, `spec.sidecar.timeoutSeconds`."""
SLACK = 8
"""Seconds that an error may be late on a busy machine."""
BATCH = 8


def slow(rows: int, milliseconds: float, **fields: Any) -> Any:
    """Return an input whose rows take this number of milliseconds each."""
    args = {"rows": rows, "kib": 1, "milliseconds": milliseconds}
    common = {"partitions": 1, "numSplits": 1, "timeoutSeconds": TIMEOUT, "globalBatchSize": BATCH}
    return spec("wide:slow", args, **{**common, **fields})


def waiting_for(cluster: Cluster) -> str:
    """Return what the only trainer waits for, according to the status."""
    (consumer,) = cluster.status().consumers
    return str(consumer.last.waiting_for)


def seconds_until_error(read: Callable[[], Any], match: str) -> float:
    """Return the seconds until the trainer gets a retryable error."""
    began = time.monotonic()
    with pytest.raises(UnavailableError, match=match) as caught:
        read()
    assert isinstance(caught.value, RetryableError)
    return time.monotonic() - began


def entries(sidecar: Sidecar, message: str) -> list[dict[str, Any]]:
    """Return a sidecar's log entries with this message."""
    lines = sidecar.log.read_text().splitlines()
    found = [json.loads(line) for line in lines if line.startswith("{")]
    return [entry for entry in found if entry.get("message") == message]


def test_a_trainer_without_workers_gets_an_error(own_cluster: Cluster) -> None:
    (sidecar,) = own_cluster.add_sidecars({"train": slow(40, 0)})
    with connect(sidecar) as data:
        took = seconds_until_error(
            lambda: next(data.numpy()),
            rf"for {TIMEOUT} s \(spec\.sidecar\.timeoutSeconds\).* Check that the workers are run",
        )
        assert TIMEOUT <= took < TIMEOUT + SLACK
        own_cluster.add_workers(1)
        assert sorted(ids(data.numpy())) == list(range(40))


def test_the_status_reports_what_a_trainer_waits_for(own_cluster: Cluster) -> None:
    (worker,) = own_cluster.add_workers(1)
    (sidecar,) = own_cluster.add_sidecars({"train": slow(200, 5, timeoutSeconds=60)})
    with connect(sidecar) as data, ThreadPoolExecutor(1) as pool:
        batches = data.numpy()
        found = ids(itertools.islice(batches, 3))
        worker.kill()
        rest = pool.submit(ids, batches)
        deadline = time.monotonic() + 30
        while "a worker" not in waiting_for(own_cluster):
            assert time.monotonic() < deadline, "the status does not report the missing worker"
            time.sleep(0.1)
        own_cluster.add_workers(1)
        found += rest.result(readers.SECONDS)
    assert sorted(found) == list(range(200))


def test_a_trainer_that_loses_all_workers_gets_an_error_and_continues_with_new_ones(
    own_cluster: Cluster,
) -> None:
    (worker,) = own_cluster.add_workers(1)
    (sidecar,) = own_cluster.add_sidecars({"train": slow(200, 5)})
    with connect(sidecar) as data:
        batches = data.numpy()
        found = ids(itertools.islice(batches, 3))
        worker.kill()

        def rest() -> None:
            for batch in batches:
                found.extend(ids([batch]))

        took = seconds_until_error(rest, rf"for {TIMEOUT} s.*spec\.sidecar\.timeoutSeconds")
        assert took < 2 * TIMEOUT + SLACK  # some rows had arrived
        assert len(found) < 200
        assert entries(sidecar, "stream broke; opening it again")
        own_cluster.add_workers(1)
        found += ids(data.numpy())
    assert sorted(found) == list(range(200))


def test_a_dataset_that_hangs_causes_an_error_in_time(own_cluster: Cluster) -> None:
    """The worker is alive."""
    own_cluster.add_workers(1)
    one = slow(0, 0)
    one["dataset"] = {"entryPoint": "wide:stuck", "args": {"rows_before": BATCH}}
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with connect(sidecar) as data:
        batches = data.numpy()
        assert ids([next(batches)]) == list(range(BATCH))
        took = seconds_until_error(
            lambda: next(batches),
            r"no rows of partition 0 arrived for 3 s \(spec\.sidecar\.timeoutSeconds; split 0 of "
            rf"dataset wide:stuck, row {BATCH}, requested from worker .*\): the worker is up but "
            r"its dataset produces nothing\. Check the worker's log, and what the dataset reads",
        )
    assert TIMEOUT - 1 <= took < TIMEOUT + SLACK
    (entry, *_) = entries(sidecar, "still waiting")
    assert entry["what"] == "rows of partition 0"
    assert re.search("split 0 .*requested from worker .*: silent", entry["source"])


def test_a_split_that_hangs_is_reported(own_cluster: Cluster) -> None:
    """The worker has one CPU."""
    own_cluster.add_workers(1, "--parallelism", "1")
    fields = {"partitions": 4, "numSplits": 4, "timeoutSeconds": 20, "epochs": 1}
    one = slow(0, 0, **fields)
    one["dataset"] = {"entryPoint": "wide:stuck_split", "args": {"rows": 64, "split": 1}}
    (sidecar,) = own_cluster.add_sidecars({"train": one})
    with connect(sidecar) as data:
        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(list, data.numpy())
            deadline = time.monotonic() + 30
            while not (stalled := list(own_cluster.status().workers[0].stalled)):
                assert time.monotonic() < deadline, "the status does not report the split"
                time.sleep(0.1)
            assert [(one.dataset, one.split, one.row) for one in stalled] == [
                ("wide:stuck_split", 1, 0)
            ]
            with pytest.raises(
                UnavailableError,
                match=r"split 1 of dataset wide:stuck_split, row 0, requested from worker .*\): "
                r"the worker has computed its row 0 for \d+ s, in \S+ \(.*wide\.py:\d+\).*\. Check",
            ):
                reading.result(readers.SECONDS)


REPLAY_SECONDS = 2 * TIMEOUT
"""Duration of a replay."""


@pytest.mark.parametrize("sizes", [[400], [400, 60]], ids=["alone", "beside one with fewer rows"])
def test_a_replay_may_take_longer_than_the_timeout(own_cluster: Cluster, sizes: list[int]) -> None:
    """This is also valid for another trainer, which waits to learn whether there are more steps."""
    milliseconds, trainers = 20, len(sizes)
    workers = {part.address: part for part in own_cluster.add_workers(2)}
    fields = {"partitions": trainers, "numSplits": trainers, "readAhead": 0, "epochs": 1}
    one = slow(0, 0, **fields)
    args = {"sizes": sizes, "milliseconds": milliseconds}
    one["dataset"] = {"entryPoint": "wide:slow_splits", "args": args}
    sidecars = own_cluster.add_sidecars({"train": one}, trainers)
    late = threading.Event()

    def read(sidecar: Sidecar) -> list[int]:
        found: list[int] = []
        with connect(sidecar) as data:
            for batch in data.numpy():
                found += ids([batch])
                if len(found) * milliseconds >= 1000 * REPLAY_SECONDS:
                    late.set()
        return found

    def kill() -> list[int]:
        assert late.wait(readers.SECONDS)
        (busy,) = (worker for worker in own_cluster.status().workers if worker.open_streams)
        workers[busy.address].kill()
        return []

    found = readers.run_concurrently([*(lambda s=s: read(s) for s in sidecars), kill])
    assert sorted(itertools.chain(*found)) == list(range(sum(sizes)))
    waits = [entry["what"] for sidecar in sidecars for entry in entries(sidecar, "still waiting")]
    assert any("workers have replayed" in what for what in waits)
    assert trainers == 1 or any("the other trainers' end" in what for what in waits)


@pytest.mark.parametrize(
    ("dataset", "kind", "text"),
    [
        ("broken:raises_late", DatasetFnError, "assert"),
        ("broken:one_mixed_split", SpecError, "rows of one batch have shapes"),
    ],
    ids=["in a worker", "in the loop"],
)
def test_an_error_of_one_trainer_ends_the_waits_of_the_others(
    own_cluster: Cluster, dataset: str, kind: type[Exception], text: str
) -> None:
    """The others would wait for its facts until `timeoutSeconds`, which is 600 by default."""
    own_cluster.add_workers(1)
    fields: dict[str, Any] = {"partitions": 2, "numSplits": 2, "timeoutSeconds": 600}
    inputs = {"train": spec(dataset, {}, globalBatchSize=BATCH, **fields)}
    sidecars = own_cluster.add_sidecars(inputs, 2)

    def error_of(sidecar: Sidecar) -> str:
        with connect(sidecar) as data, pytest.raises((DatasetFnError, kind)) as caught:
            list(data.numpy())
        return str(caught.value)

    with ThreadPoolExecutor(2) as pool:
        reading = [pool.submit(error_of, sidecar) for sidecar in sidecars]
        failed, waiting = sorted(
            (one.result(readers.SECONDS) for one in reading), key=lambda text: "stopped" in text
        )
    assert text in failed
    assert re.search(rf"trainer [01] of 2 has stopped: (?s:.*){text}", waiting)


def test_an_error_of_one_trainer_ends_the_wait_of_one_that_is_an_epoch_ahead(
    own_cluster: Cluster,
) -> None:
    own_cluster.add_workers(1)
    fields: dict[str, Any] = {"partitions": 2, "numSplits": 2, "timeoutSeconds": 600}
    inputs = {"train": spec("broken:mixed_once", {}, globalBatchSize=8, epochs=3, **fields)}
    sidecars = own_cluster.add_sidecars(inputs, 2)

    def epoch_of(trainer: Any) -> Exception | None:
        try:
            list(trainer.numpy())
        except SpecError as error:
            return error
        return None

    trainers = [connect(sidecar) for sidecar in sidecars]
    with trainers[0], trainers[1]:
        # Rows are only decoded in the loop: the sidecar has sent this epoch and the next by then.
        ends = readers.run_concurrently([lambda one=one: epoch_of(one) for one in trainers])
        assert "rows of one batch have shapes" in str(ends)
        (ahead,) = (one for one, error in zip(trainers, ends, strict=True) if error is None)
        assert epoch_of(ahead) is None
        with pytest.raises(DatasetFnError, match=r"has stopped: .* rows of one batch have shapes"):
            list(ahead.numpy())


def test_a_trainer_that_leaves_an_epoch_ends_the_waits_of_the_others(own_cluster: Cluster) -> None:
    own_cluster.add_workers(1)
    fields: dict[str, Any] = {"partitions": 2, "numSplits": 2, "timeoutSeconds": 600}
    inputs = {"train": spec("broken:one_slow_split", {}, globalBatchSize=8, epochs=2, **fields)}
    trainers = [connect(sidecar) for sidecar in own_cluster.add_sidecars(inputs, 2)]

    def error_of(trainer: Any) -> str:
        batches = trainer.numpy()
        if ids([next(batches)]) != [0, 1, 2, 3]:  # of the slow split, which has not ended yet
            batches = trainer.numpy()
        with pytest.raises((DatasetFnError, UnavailableError)) as caught:
            list(batches)
        return str(caught.value)

    with trainers[0], trainers[1]:
        errors = readers.run_concurrently([lambda one=one: error_of(one) for one in trainers])
    later, waiting = sorted(errors, key=lambda text: "has stopped" not in text)
    left = "trainer [01] of 2 reads epoch 2, and has not read epoch 1 to its end. Take the same"
    assert re.match(left, waiting)
    assert re.match(f"trainer [01] of 2 has stopped: {left}", later)


MANY = 300


def test_one_worker_serves_hundreds_of_partitions(own_cluster: Cluster) -> None:
    """All partitions are open at once: a step needs a row of each, and none of them ends soon."""
    own_cluster.add_workers(1, "--parallelism", "64")
    fields = {"partitions": MANY, "numSplits": MANY, "globalBatchSize": MANY}
    (sidecar,) = own_cluster.add_sidecars(
        {"train": slow(2000 * MANY, 20, timeoutSeconds=60, **fields)}
    )
    with connect(sidecar) as data:
        steps = [ids([batch]) for batch in itertools.islice(data.numpy(), 3)]
    assert [len(step) for step in steps] == [MANY] * 3
    assert len(set(itertools.chain(*steps))) == 3 * MANY


def test_too_many_partitions_for_the_workers_streams_are_an_error_with_a_remedy(
    own_cluster: Cluster,
) -> None:
    own_cluster.add_workers(1, "--max-streams", "4")
    (sidecar,) = own_cluster.add_sidecars({"train": slow(8000, 20, partitions=8, numSplits=8)})
    with connect(sidecar) as data:
        seconds_until_error(
            lambda: next(data.numpy()),
            r"4 streams open \(--max-streams\).*Add workers, or lower spec\.partitions",
        )
