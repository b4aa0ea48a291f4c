"""Packed rows are those of each split alone, whatever dies or moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterable
from typing import Any

import pytest

from distributed_input import PositionError, SpecError
from testing import packing
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec, temporary_sidecars
from testing.integration.datasets.rows import document

ROWS, LENGTH, SPLITS, BATCH, WINDOW = 3000, 64, 8, 16, 12


def packed(method: str = "BestFit", **fields: Any) -> Any:
    packing = {
        "length": fields.pop("length", LENGTH),
        "method": method,
        "openSequences": 5,
        "balanceWindow": fields.pop("window", 0),
    }
    args = {"rows": ROWS, **fields.pop("args", {})}
    shape = {"numSplits": SPLITS, "partitions": 8, "globalBatchSize": BATCH, "epochs": 1, **fields}
    return spec("rows:documents", args, packing=packing, **shape)


def expected_splits(method: str, window: int) -> list[list[Any]]:
    """Return the rows of each split, in order."""
    splits = (map(document, range(split, ROWS, SPLITS)) for split in range(SPLITS))
    packs = [packing.pack(split, LENGTH, method, 5) for split in splits]
    balanced = [packing.balance(one, window or 1, BATCH // SPLITS) for one in packs]
    return [
        [tuple(sorted(packing.columns(row, LENGTH).items())) for row in one] for one in balanced
    ]


def expected(method: str) -> list[Any]:
    """Return the rows of all splits, sorted."""
    return sorted(itertools.chain(*expected_splits(method, 0)))


def rows_of(batches: Iterable[Any]) -> list[Any]:
    names = ("positions", "segment_ids", "tokens")
    return [
        tuple((name, batch[name][at].tolist()) for name in names)
        for batch in batches
        for at in range(len(batch["tokens"]))
    ]


def take(
    sidecar: Sidecar, position: bytes | None, number: int | None
) -> tuple[list[list[Any]], bytes]:
    """Return the rows of each step, and the position behind them."""
    with readers.connect(sidecar) as data:
        if position is not None:
            data.restore(position)
        steps = [rows_of([batch]) for batch in itertools.islice(data.numpy(), number)]
        return steps, data.position()


@pytest.mark.parametrize(
    ("method", "reference"),
    [("FirstFit", "first_fit"), ("ConcatenateAndCut", "concatenate_and_cut")],
)
def test_an_epoch_has_the_packed_rows_of_each_split(
    shared: Cluster, method: str, reference: str
) -> None:
    (sidecar,) = shared.add_sidecars({f"packed-{reference}".replace("_", "-"): packed(method)})
    steps, _ = take(sidecar, None, None)
    assert all(len(step) == BATCH for step in steps[:-8])
    assert sorted(row for step in steps for row in step) == expected(reference)


def test_a_killed_worker_and_a_restore_on_eight_trainers_change_no_row(
    own_cluster: Cluster,
) -> None:
    first, _ = own_cluster.add_workers(2)
    inputs = {"packed": packed(window=WINDOW)}
    with temporary_sidecars(own_cluster, inputs) as (sidecar,):
        whole, _ = take(sidecar, None, None)
    assert sorted(row for step in whole for row in step) == expected("best_fit")
    firsts = (one[: BATCH // SPLITS] for one in expected_splits("best_fit", WINDOW))
    assert sorted(whole[0]) == sorted(itertools.chain(*firsts))
    with temporary_sidecars(own_cluster, inputs, 2) as sidecars:
        calls = [lambda one=one: take(one, None, 20) for one in sidecars]
        parts = readers.run_concurrently(calls)
    found = [sorted(a + b) for a, b in zip(*(steps for steps, _ in parts), strict=True)]
    first.kill()
    with temporary_sidecars(own_cluster, inputs, 8) as sidecars:
        calls = [lambda one=one: take(one, parts[1][1], None) for one in sidecars]
        rest = [steps for steps, _ in readers.run_concurrently(calls)]
    assert 20 * BATCH // SPLITS % WINDOW  # the restore is within a window
    found += [sorted(itertools.chain(*step)) for step in itertools.zip_longest(*rest, fillvalue=[])]
    full = len(list(itertools.takewhile(lambda step: len(step) == BATCH, whole)))
    assert full > 30
    assert found[:full] == [sorted(step) for step in whole[:full]]
    assert sorted(row for step in found for row in step) == expected("best_fit")
    for other in (packed(length=32, window=WINDOW), packed()):
        with temporary_sidecars(own_cluster, {"packed": other}) as (sidecar,):
            with pytest.raises(PositionError, match=r"packed by best_fit into 64.* over 12"):
                take(sidecar, parts[0][1], 1)


def test_batches_cannot_be_packed(shared: Cluster) -> None:
    (sidecar,) = shared.add_sidecars({"packed-batches": packed(args={"batch": 4})})
    with pytest.raises(SpecError, match=r"components are vectors.*Remove batch\(\)"):
        take(sidecar, None, 1)
