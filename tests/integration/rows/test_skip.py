"""Steps that the program skips: the others stay as they are, also after a restore."""

from __future__ import annotations

import itertools
from threading import Barrier
from typing import Any

import pytest

from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.readers import global_steps, ids

ROWS, BATCH = 500, 20
READ, SKIPPED = 3, 9
INPUTS: dict[str, Any] = {
    "plain": spec(
        "rows:shuffled", {"rows": ROWS, "global_batch": BATCH}, numSplits=16, partitions=4, seed=2
    ),
    "mixed": spec(
        "rows:mixed",
        {"sizes": {"a": 200, "b": 300}},
        mixture={
            "weights": {"a": 1, "b": 1},
            "schedule": [{"step": 8, "weights": {"a": 1, "b": 3}}],
        },
        numSplits=4,
        partitions=4,
        globalBatchSize=BATCH,
    ),
}


@pytest.mark.parametrize("name", INPUTS)
def test_skipped_steps_are_left_out_also_after_a_restore(cluster: Cluster, name: str) -> None:
    last = 25 if name == "plain" else 30
    sidecars = cluster.add_sidecars({f"skip-{name}": INPUTS[name]}, 2)
    read = readers.read(sidecars, steps=last)
    expected = global_steps([epochs[0] for epochs in read])
    together = Barrier(2)

    def train(sidecar: Sidecar) -> tuple[list[Any], bytes]:
        with readers.connect(sidecar) as data:
            found = [readers.copy_batch(one) for one in itertools.islice(data.numpy(), READ)]
            data.skip(SKIPPED - 1)
            data.skip(1)
            saved = data.position()
            found += map(readers.copy_batch, itertools.islice(data.numpy(), last - READ - SKIPPED))
            together.wait(readers.SECONDS)
            return found, saved

    parts = readers.run_concurrently([lambda one=one: train(one) for one in sidecars])
    assert global_steps([batches for batches, _ in parts]) == [
        *expected[:READ],
        *expected[READ + SKIPPED :],
    ]
    cluster.remove(sidecars)
    others = cluster.add_sidecars({f"skip-{name}": INPUTS[name]}, 4)

    def rest(sidecar: Sidecar) -> list[Any]:
        with readers.connect(sidecar) as data:
            data.restore(parts[0][1])
            data.skip(2)
            batches = itertools.islice(data.numpy(), last - READ - SKIPPED - 2)
            return [readers.copy_batch(one) for one in batches]

    found = readers.run_concurrently([lambda one=one: rest(one) for one in others])
    assert global_steps(found) == expected[READ + SKIPPED + 2 :]


def test_an_epoch_of_which_the_rest_is_skipped_ends(cluster: Cluster) -> None:
    sidecars = cluster.add_sidecars({"skip-rest": INPUTS["plain"]}, 2)

    def train(sidecar: Sidecar) -> list[Any]:
        with readers.connect(sidecar) as data:
            next(data.numpy())
            data.skip(1000)
            assert list(data.numpy()) == []
            return [readers.copy_batch(one) for one in data.numpy()]

    found = readers.run_concurrently([lambda one=one: train(one) for one in sidecars])
    assert sorted(ids(itertools.chain(*found))) == list(range(ROWS))
