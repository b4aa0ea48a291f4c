"""Workers that only the sidecar of their own pod uses."""

from __future__ import annotations

import itertools
import time
from collections import Counter
from collections.abc import Callable
from typing import Any

from testing.integration import readers
from testing.integration.cluster import Cluster, Part, spec

ROWS, BATCH = 240, 8
# The rows of an epoch are many times what the buffers hold.
FIELDS: dict[str, Any] = {"partitions": 4, "numSplits": 12, "globalBatchSize": BATCH, "epochs": 1}


def wide(**fields: Any) -> Any:
    return spec("wide:wide", {"rows": ROWS}, buffer="4Mi", **{**FIELDS, **fields})


def eventually(condition: Callable[[], bool]) -> None:
    """Wait until the dispatcher's status meets a condition. Processes report once a second."""
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline, "the condition did not become true in time"
        time.sleep(0.05)


def add_worker(cluster: Cluster, *flags: str) -> Part:
    """Start a worker, and return when the dispatcher has it."""
    count = len(cluster.status().workers)
    (worker,) = cluster.add_workers(1, "--parallelism=2", *flags)
    eventually(lambda: len(cluster.status().workers) > count)
    return worker


def sent_rows(cluster: Cluster) -> Counter[str]:
    """Return the rows that the workers of each pod have sent, as they last reported."""
    found: Counter[str] = Counter()
    for one in cluster.status().workers:
        found[one.pod] += one.rows
    return found


def wait_for_consumer(cluster: Cluster) -> None:
    """Wait until the sidecar has the present workers from the answer to a heartbeat."""

    def age() -> float:
        return cluster.status().consumers[0].age_seconds

    for _ in range(2):  # the sidecar receives the first answer before it sends the next heartbeat
        before = age()
        eventually(lambda: age() < before)  # noqa: B023 - it runs now


def test_only_the_sidecar_of_the_same_pod_uses_a_local_worker(own_cluster: Cluster) -> None:
    add_worker(own_cluster)
    sidecars = own_cluster.add_sidecars({"before": wide()}, 2)
    expected = readers.global_steps(readers.epoch(readers.read(sidecars, "before")))
    add_worker(own_cluster, "--pod=a")
    add_worker(own_cluster, "--pod=z")
    sidecars = own_cluster.add_sidecars({"beside": wide()}, 2, pods=["a", "b"])
    consumers = readers.epoch(readers.read(sidecars, "beside"))
    assert readers.global_steps(consumers) == expected  # the same rows in every step
    assert len(readers.rows_of(consumers)) == ROWS
    eventually(lambda: sent_rows(own_cluster).total() >= 2 * ROWS)
    sent = sent_rows(own_cluster)
    first, second = (len(readers.ids(one)) for one in consumers)
    assert sent["z"] == 0
    assert 0 < sent["a"] <= first
    assert sent[""] >= ROWS + second


def test_rows_after_the_loss_of_a_local_worker_are_those_of_an_undisturbed_run(
    own_cluster: Cluster,
) -> None:
    local = add_worker(own_cluster, "--pod=a")
    inputs = {name: wide(determinism="Strict") for name in ("calm", "disturbed")}
    (sidecar,) = own_cluster.add_sidecars(inputs, pods=["a"])
    calm = readers.ids(readers.epoch(readers.read([sidecar], "calm"))[0])
    assert sorted(calm) == list(range(ROWS))
    eventually(lambda: sent_rows(own_cluster) == {"a": ROWS})  # no other worker is needed
    with readers.connect(sidecar, "disturbed") as data:
        batches = data.numpy()
        found = [readers.copy_batch(batch) for batch in itertools.islice(batches, 4)]
        add_worker(own_cluster)
        local.kill()
        found += [readers.copy_batch(batch) for batch in batches]
    assert readers.ids(found) == calm
    eventually(lambda: sent_rows(own_cluster)[""] > 0)


def test_a_local_worker_is_used_when_it_starts_after_the_others(own_cluster: Cluster) -> None:
    add_worker(own_cluster)
    (sidecar,) = own_cluster.add_sidecars({"train": wide(epochs=2)}, pods=["a"])
    with readers.connect(sidecar) as data:
        assert sorted(readers.ids(data.numpy())) == list(range(ROWS))
        assert sent_rows(own_cluster)["a"] == 0
        add_worker(own_cluster, "--pod=a")
        wait_for_consumer(own_cluster)
        assert sorted(readers.ids(data.numpy())) == list(range(ROWS))
    eventually(lambda: sent_rows(own_cluster).total() >= 2 * ROWS)
    assert sent_rows(own_cluster)["a"] > 0
