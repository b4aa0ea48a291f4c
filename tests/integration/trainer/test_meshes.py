"""A mesh of data 2 x model 2 in one trainer: two processes get each batch, and it is sent once."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from distributed_input.api.environment import DIR_ENV
from testing.documentation.blocks import ROOT, blocks
from testing.integration.cluster import Cluster, Sidecar, spec

PROGRAM = Path(__file__).parents[3] / "testing" / "integration" / "mesh_trainer.py"
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


class Rank:
    """A process of the trainer, with the variables that torchrun sets."""

    def __init__(self, folder: Path, rank: int) -> None:
        self._folder, self.rank = folder, rank

    def start(self, position: str = "", program: Sequence[str] = (str(PROGRAM), str(DATA))) -> None:
        size = str(DATA * MODEL)
        numbers = {"RANK": str(self.rank), "LOCAL_RANK": str(self.rank)}
        numbers |= {"WORLD_SIZE": size, "LOCAL_WORLD_SIZE": size}
        self.process = subprocess.Popen(
            [sys.executable, *program, *filter(None, [position])],
            env={**os.environ, **numbers, DIR_ENV: str(self._folder)},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def wait_connected(self) -> None:
        assert self.answer() == [self.rank // MODEL, DATA]

    def request(self, line: str = "next") -> None:
        print(line, file=self.process.stdin, flush=True)

    def answer(self) -> Any:
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        assert line, f"the process ended with status {self.process.wait(10)}"
        return json.loads(line)

    def position(self) -> str:
        self.request("position")
        return str(self.answer())

    def kill(self) -> None:
        self.process.kill()
        self.process.communicate()


@contextmanager
def mesh(cluster: Cluster) -> Iterator[tuple[Sidecar, list[Rank]]]:
    """Start a sidecar with a rank for each group, and all processes."""
    (sidecar,) = cluster.add_sidecars({"mesh": INPUT}, 1, ranks_per_trainer=DATA)
    ranks = [Rank(sidecar.shared, rank) for rank in range(DATA * MODEL)]
    try:
        for rank in ranks:
            rank.start()
        for rank in ranks:
            rank.wait_connected()
        yield sidecar, ranks
    finally:
        for rank in ranks:
            rank.kill()
        cluster.remove([sidecar])


def steps(ranks: Sequence[Rank], count: int | None = None) -> list[int]:
    """Read steps of all ranks together. Return the ids, of one rank of each group."""
    found: list[int] = []
    for _ in itertools.count() if count is None else range(count):
        for rank in ranks:
            rank.request()
        batches = [rank.answer() for rank in ranks]
        if None in batches:
            assert batches == [None] * len(ranks), "all ranks have the same number of steps"
            break
        for group in range(DATA):
            first, second = batches[group * MODEL : (group + 1) * MODEL]
            assert first == second, "ranks of a group get equal batches"
            found += first[1]
    return found


def sent_rows(cluster: Cluster) -> int:
    """Return how many rows the workers have sent, when nobody reads from them any more."""
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
    with mesh(cluster) as (sidecar, ranks):
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
