"""The chief's checkpoint, alone, restores all trainers of `MultiWorkerMirroredStrategy`."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from testing.compat.trainer_processes import Told, told_by
from testing.integration.checkpointing_trainer import STEPS_AFTER_SAVE
from testing.integration.cluster import Cluster, spec, temporary_sidecars
from tests.integration.test_checkpoints import BATCH, EVERY, RESOURCE, ROWS

STEPS = 7
INPUT = {"train": spec("rows:numbered", {"rows": ROWS}, **RESOURCE)}


def trained(cluster: Cluster, trainers: int, folder: Path, steps: int) -> Told:
    """What so many trainers, processes of their own beside new sidecars, say."""
    with temporary_sidecars(cluster, INPUT, trainers) as sidecars:
        return told_by(
            "checkpointing_trainer", sidecars, str(folder), str(steps), of="testing.integration"
        )


def rows_of(told: Told, part: str = "rows") -> list[int]:
    return [row for one in told for row in itertools.chain(*one[part])]


@pytest.mark.parametrize(("before", "after"), [(2, [2, 1]), (1, [2])], ids=["2 to 2, 1", "1 to 2"])
def test_the_rest_of_the_epoch_comes_once(
    cluster: Cluster, tmp_path: Path, before: int, after: list[int]
) -> None:
    """On as many trainers, and on others; the steps behind the save are taken again."""
    first = trained(cluster, before, tmp_path, STEPS)
    consumed = rows_of(first)
    assert len(set(consumed)) == STEPS * BATCH
    assert len(set(rows_of(first, "late")) - set(consumed)) == STEPS_AFTER_SAVE * BATCH
    assert [path.name for path in tmp_path.glob("ckpt-*.index")] == ["ckpt-1.index"]
    for trainers in after:
        rest = trained(cluster, trainers, tmp_path, 0)
        assert all(one["restored"] for one in rest)
        assert len({len(one["rows"]) for one in rest}) == 1
        assert sorted(consumed + rows_of(rest)) == sorted(EVERY)
        assert {one["total"] for one in rest} == {sum(EVERY)}
