"""The chief's checkpoint alone restores all trainers of `MultiWorkerMirroredStrategy`."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from testing.compat.trainer_processes import Results, run_trainers
from testing.integration.checkpointing_trainer import STEPS_AFTER_SAVE
from testing.integration.cluster import Cluster, spec, temporary_sidecars
from tests.integration.trainer.test_checkpoints import BATCH, EVERY, RESOURCE, ROWS

STEPS = 7
INPUT = {"train": spec("rows:numbered", {"rows": ROWS}, **RESOURCE)}


def train(cluster: Cluster, trainers: int, folder: Path, steps: int) -> Results:
    """Run this number of trainer processes beside new sidecars, and return what they print."""
    with temporary_sidecars(cluster, INPUT, trainers) as sidecars:
        return run_trainers(
            "checkpointing_trainer",
            sidecars,
            str(folder),
            str(steps),
            package="testing.integration",
        )


def rows_of(results: Results, part: str = "rows") -> list[int]:
    return [row for one in results for row in itertools.chain(*one[part])]


@pytest.mark.parametrize(("before", "after"), [(2, [2, 1]), (1, [2])], ids=["2 to 2, 1", "1 to 2"])
def test_restored_trainers_read_the_rest_of_the_epoch_once(
    cluster: Cluster, tmp_path: Path, before: int, after: list[int]
) -> None:
    """For the same and other numbers of trainers. Steps after the save are repeated."""
    first = train(cluster, before, tmp_path, STEPS)
    consumed = rows_of(first)
    assert len(set(consumed)) == STEPS * BATCH
    assert len(set(rows_of(first, "late")) - set(consumed)) == STEPS_AFTER_SAVE * BATCH
    assert [path.name for path in tmp_path.glob("ckpt-*.index")] == ["ckpt-1.index"]
    for trainers in after:
        rest = train(cluster, trainers, tmp_path, 0)
        assert all(one["restored"] for one in rest)
        assert len({len(one["rows"]) for one in rest}) == 1
        assert sorted(consumed + rows_of(rest)) == sorted(EVERY)
        assert {one["total"] for one in rest} == {sum(EVERY)}
