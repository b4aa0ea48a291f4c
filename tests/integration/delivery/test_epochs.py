"""Many epochs on one connection: complete, aborted, and continued."""

from __future__ import annotations

import random
from typing import Any

from testing.integration import readers
from testing.integration.cluster import Cluster, spec

ROWS = 300
INPUT: dict[str, Any] = {
    "entry_point": "wide:wide",
    "args": {"rows": ROWS, "width": 64},
    "partitions": 4,
    "numSplits": 8,
    "globalBatchSize": 32,
}


def test_an_epoch_that_is_read_ahead_is_delivered_once(cluster: Cluster) -> None:
    """The sidecar begins the next epoch before a request; its units must not arrive twice."""
    (sidecar,) = cluster.add_sidecars({"epochs": spec(**INPUT)})
    dice = random.Random(7)
    with readers.connect(sidecar) as data:
        for _ in range(30):
            batches = data.numpy()
            if dice.random() < 0.3:  # abort it
                for _, _ in zip(range(dice.randrange(4)), batches, strict=False):
                    pass
                continue
            ids = [int(i) for batch in batches for i in batch["id"]]
            assert sorted(ids) == list(range(ROWS))


def test_an_aborted_epoch_continues_from_its_position(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"resumed": spec(**INPUT)})
    dice = random.Random(8)
    with readers.connect(sidecar) as data:
        for _ in range(10):
            ids: list[int] = []
            cut = dice.randrange(10)
            for step, batch in enumerate(data.numpy()):
                ids += [int(i) for i in batch["id"]]
                if step == cut:
                    data.restore(data.position())
                    break
            if step == cut:
                ids += [int(i) for batch in data.numpy() for i in batch["id"]]
            assert sorted(ids) == list(range(ROWS))
