"""A mesh of data 2 x model 2: in one trainer, two processes get each batch, and it is sent once."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from testing.documentation.blocks import ROOT, blocks
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.rank_process import RankProcess

GUIDE = ROOT / "docs" / "meshes.md"
DATA, MODEL = 2, 2
ROWS, BATCH = 160, 16
INPUT = spec(
    "rows:shuffled",
    {"rows": ROWS, "global_batch": BATCH},
    partitions=8,
    numSplits=16,
    globalBatchSize=BATCH,
    epochs=1,  # workers send no rows of a second one
)


class Rank(RankProcess):
    def __init__(self, folder: Path, rank: int, data: int = DATA) -> None:
        size = DATA * MODEL
        self.data_rank = rank * data // size
        super().__init__(folder, rank, size, (rank, size), data)

    def wait_connected(self) -> None:
        assert self.answer()[0] == self.data_rank


@contextmanager
def mesh(
    cluster: Cluster, data: int = DATA, pods: int = 1, position: str = ""
) -> Iterator[tuple[list[Sidecar], list[Rank]]]:
    """Start the sidecar of each pod, and all processes, at a position."""
    per = f"1/{pods // data}" if pods > data else data // pods
    sidecars = cluster.add_sidecars({"mesh": INPUT}, pods, ranks_per_trainer=per)
    size = DATA * MODEL
    ranks = [Rank(sidecars[rank * pods // size].shared, rank, data) for rank in range(size)]
    try:
        for rank in ranks:
            rank.start(position)
        for rank in ranks:
            rank.wait_connected()
        yield sidecars, ranks
    finally:
        for rank in ranks:
            rank.kill()
        cluster.remove(sidecars)


def steps(ranks: Sequence[Rank], count: int | None = None) -> list[int]:
    """Read steps of all ranks together. Return the ids, of one rank of each group."""
    size = 1 + ranks[-1].data_rank
    model = len(ranks) // size
    found: list[int] = []
    for _ in itertools.count() if count is None else range(count):
        for rank in ranks:
            rank.request()
        batches = [rank.answer() for rank in ranks]
        if None in batches:
            assert batches == [None] * len(ranks), "all ranks have the same number of steps"
            break
        for group in range(size):
            first, *others = batches[group * model : (group + 1) * model]
            assert others == [first] * (model - 1), "ranks of a group get equal batches"
            found += first[1]
    return found


def sent_rows(cluster: Cluster) -> int:
    """Return how many rows the workers have sent, once no stream is open."""
    deadline = time.monotonic() + 20
    while not (workers := cluster.status().workers)[0].rows or workers[0].open_streams:
        assert time.monotonic() < deadline, f"the workers still report {workers}"
        time.sleep(0.1)
    return sum(worker.rows for worker in workers)


def test_a_group_gets_equal_batches_that_are_sent_once(own_cluster: Cluster) -> None:
    own_cluster.add_workers(1)  # those of other tests may still report rows
    with mesh(own_cluster) as (_, ranks):
        found = steps(ranks)
    assert sorted(found) == list(range(ROWS))
    assert sent_rows(own_cluster) == ROWS


def test_the_example_of_the_guide_runs(cluster: Cluster) -> None:
    (block,) = [b for b in blocks("meshes.md", GUIDE.read_text()) if b.language == "python"]
    assert len(block.text.splitlines()) <= 10
    (sidecar,) = cluster.add_sidecars({"train": INPUT}, 1, ranks_per_trainer=DATA)
    ranks = [Rank(sidecar.shared, rank) for rank in range(DATA * MODEL)]
    for rank in ranks:
        rank.start(program=("-c", block.text))
    read = [rank.process.communicate(timeout=60)[0].splitlines() for rank in ranks]
    cluster.remove([sidecar])
    assert (read[0], read[2]) == (read[1], read[3])
    found = [
        number for lines in (read[0], read[2]) for line in lines for number in json.loads(line)
    ]
    assert sorted(found) == list(range(ROWS))


def test_the_death_of_a_reader_and_of_the_sidecar_loses_no_row(cluster: Cluster) -> None:
    with mesh(cluster) as ((sidecar,), ranks):
        found = steps(ranks, 2)
        position = ranks[1].position()
        ranks[1].kill()
        ranks[1].start(position)
        ranks[1].wait_connected()
        found += steps(ranks, 2)
        sidecar.kill()
        replaced = cluster.add_sidecars(
            {"mesh": INPUT}, 1, folder=sidecar.shared, ranks_per_trainer=DATA
        )
        found += steps(ranks)
        cluster.remove(replaced)
    assert sorted(found) == list(range(ROWS))


def test_a_group_of_several_pods_gets_equal_batches_and_goes_on_with_others(
    cluster: Cluster,
) -> None:
    with mesh(cluster, data=2, pods=4) as (_, ranks):
        found = steps(ranks, 3)
        position = ranks[3].position()  # of the second pod of a group
    with mesh(cluster, data=1, pods=2, position=position) as (_, ranks):
        found += steps(ranks, 2)
        position = ranks[2].position()
    with mesh(cluster, data=2, pods=1, position=position) as (_, ranks):
        found += steps(ranks)
    assert sorted(found) == list(range(ROWS))
