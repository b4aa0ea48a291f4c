"""Several processes of a trainer read through one sidecar, each as a consumer of its own."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path

from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.rank_process import RankProcess

ROWS, BATCH = 160, 16  # each partition has as many rows, so that all steps are full
INPUT = spec(
    "rows:shuffled",
    {"rows": ROWS, "global_batch": BATCH},
    partitions=8,
    numSplits=16,
    globalBatchSize=BATCH,
)


class Rank(RankProcess):
    def __init__(self, folder: Path, trainer: int, trainers: int, rank: int, ranks: int) -> None:
        number, count = trainer * ranks + rank, trainers * ranks
        super().__init__(folder, number, count, (rank, ranks))

    def wait_connected(self) -> None:
        assert self.answer() == [self.rank, self.ranks]


@contextmanager
def ranks_of(
    sidecars: Sequence[Sidecar], ranks_per_trainer: int, position: str = ""
) -> Iterator[list[Rank]]:
    """Start all ranks, and kill them at the end."""
    found = [
        Rank(sidecar.shared, trainer, len(sidecars), rank, ranks_per_trainer)
        for trainer, sidecar in enumerate(sidecars)
        for rank in range(ranks_per_trainer)
    ]
    with ExitStack() as stack:
        for rank in found:
            rank.start(position)
            stack.callback(rank.kill)
        for rank in found:
            rank.wait_connected()
        yield found


def steps(ranks: Sequence[Rank], count: int | None = None) -> list[list[int]]:
    """Read steps of all ranks together. Return the ids of each step, sorted."""
    read: list[list[int]] = []
    while count is None or len(read) < count:
        for rank in ranks:
            rank.request()
        batches = [rank.answer() for rank in ranks]
        if None in batches:
            assert batches == [None] * len(ranks), "all ranks have the same number of steps"
            break
        read.append(sorted(itertools.chain(*batches)))
    return read


@contextmanager
def sidecars_of(cluster: Cluster, trainers: int, ranks_per_trainer: int) -> Iterator[list[Sidecar]]:
    added = cluster.add_sidecars({"ranks": INPUT}, trainers, ranks_per_trainer=ranks_per_trainer)
    try:
        yield added
    finally:
        cluster.remove([one for one in added if one.process.alive])


def test_ranks_are_killed_and_resumed_as_other_numbers_of_trainers_and_ranks(
    cluster: Cluster,
) -> None:
    with sidecars_of(cluster, 1, 1) as alone:
        whole = readers.global_steps(readers.epoch(readers.read(alone)))
    assert sorted(itertools.chain(*whole)) == list(range(ROWS))
    with sidecars_of(cluster, 2, 2) as sidecars, ranks_of(sidecars, 2) as ranks:
        assert steps(ranks, 4) == whole[:4]
        position = ranks[3].position()
        assert steps(ranks, 1) == whole[4:5]  # it is lost with the processes
    for trainers, each in ((1, 2), (2, 4)):
        with (
            sidecars_of(cluster, trainers, each) as sidecars,
            ranks_of(sidecars, each, position) as ranks,
        ):
            assert steps(ranks) == whole[4:]


def test_the_death_of_a_rank_and_of_a_sidecar_loses_no_row(cluster: Cluster) -> None:
    with sidecars_of(cluster, 2, 2) as sidecars, ranks_of(sidecars, 2) as ranks:
        found = steps(ranks, 2)
        position = ranks[1].position()
        ranks[1].kill()
        ranks[1].start(position)
        ranks[1].wait_connected()
        found += steps(ranks, 2)
        sidecars[1].kill()
        replaced = cluster.add_sidecars(
            {"ranks": INPUT}, 2, only=1, folder=sidecars[1].shared, ranks_per_trainer=2
        )
        found += steps(ranks)
        cluster.remove(replaced)
    assert sorted(itertools.chain(*found)) == list(range(ROWS))
