"""Each row arrives exactly once per epoch, for 1, 2 and 4 trainers."""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

import pytest

from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.datasets import rows as datasets
from testing.integration.readers import epoch, global_steps, ids

# Eleven splits for four partitions: empty, smaller than a batch, and of several batches.
SIZES = [3, 0, 50, 7, 1, 20, 0, 0, 33, 2, 9]
FILES = [5, 0, 17, 1, 30, 8, 2]
ALL = list(range(sum(SIZES)))
CASES: dict[str, tuple[int, dict[str, Any]]] = {
    "uneven": (sum(SIZES), {"partitions": 4, "globalBatchSize": 8}),
    "uneven-in-batches": (sum(SIZES), {"partitions": 4, "globalBatchSize": 8}),
    "few-splits": (101, {"numSplits": 3, "partitions": 4, "globalBatchSize": 12}),
    "shuffled-before-shard": (103, {}),
    "selected-after-map": (103, {}),
    "listed-before-shard": (sum(FILES), {"numSplits": 5, "globalBatchSize": 8}),
}
TRAINERS = (1, 2, 4)


def _inputs(pattern: str) -> dict[str, Any]:
    entries: dict[str, tuple[str, dict[str, Any]]] = {
        "uneven": ("rows:uneven", {"sizes": SIZES}),
        "uneven-in-batches": ("rows:uneven", {"sizes": SIZES, "batch": 6}),
        "few-splits": ("rows:numbered", {"rows": 101}),
        "shuffled-before-shard": ("rows:shuffled", {"rows": 103, "global_batch": 16}),
        "selected-after-map": ("rows:selected", {"rows": 103, "global_batch": 16}),
        "listed-before-shard": ("rows:listed", {"pattern": pattern}),
    }
    fields = {case: dict(more) for case, (_, more) in CASES.items()}
    for case in ("uneven", "uneven-in-batches"):
        fields[case]["numSplits"] = len(SIZES)
    return {case: spec(*entry, **fields[case]) for case, entry in entries.items()}


@pytest.fixture(scope="module")
def trainers(shared: Cluster, tmp_path_factory: pytest.TempPathFactory) -> dict[int, list[Sidecar]]:
    """Start the sidecars of each number of trainers. The inputs are called CASE-TRAINERS."""
    inputs = _inputs(datasets.write_files(tmp_path_factory.mktemp("files"), FILES))
    return {
        n: shared.add_sidecars({f"{case}-{n}": one for case, one in inputs.items()}, n)
        for n in TRAINERS
    }


@pytest.mark.parametrize("consumers", TRAINERS)
@pytest.mark.parametrize("case", CASES)
def test_every_row_arrives_once(
    cluster: Cluster, trainers: dict[int, list[Sidecar]], case: str, consumers: int
) -> None:
    count, fields = CASES[case]
    read = readers.read(trainers[consumers], f"{case}-{consumers}", epochs=2)
    first, second = (global_steps(epoch(read, number)) for number in (0, 1))
    for steps in (first, second):
        assert sorted(itertools.chain(*steps)) == list(range(count))
    if case != "few-splits":  # three splits can get the same order twice
        assert first != second
    batch = fields.get("globalBatchSize", 16) // consumers
    for epochs in read:
        for batches in epochs:
            sizes = [len(one["id"]) for one in batches]
            assert_only_the_last_is_partial(sizes, batch)


def assert_only_the_last_is_partial(sizes: list[int], batch: int) -> None:
    """Require full batches, then at most one smaller one, then only empty ones."""
    filled = [size for size in sizes if size]
    assert sizes == filled + [0] * (len(sizes) - len(filled))
    assert all(size == batch for size in filled[:-1])
    assert not filled or filled[-1] <= batch


def test_a_trainer_without_rows_gets_empty_batches(cluster: Cluster) -> None:
    # Only split 1 has rows, so one of the two trainers has none.
    inputs = {"lopsided": spec("rows:uneven", {"sizes": [0, 21]}, numSplits=2, globalBatchSize=8)}
    read = readers.read(cluster.add_sidecars(inputs, 2), epochs=1)
    steps = epoch(read)
    sizes = sorted([len(batch["id"]) for batch in batches] for batches in steps)
    assert sizes == [[0] * 6, [4, 4, 4, 4, 4, 1]]
    empty = next(batches[0] for batches in steps if not len(batches[0]["id"]))
    assert empty["square"].shape == (0,)
    assert empty["square"].dtype == "int32"


@pytest.mark.parametrize("consumers", [1, 2])
def test_drop_removes_rows_that_fill_no_batch(cluster: Cluster, consumers: int) -> None:
    name = f"drop-{consumers}"
    one = spec("rows:uneven", {"sizes": SIZES}, numSplits=len(SIZES), partitions=4,
               globalBatchSize=8, remainder="Drop")  # fmt: skip
    steps = epoch(readers.read(cluster.add_sidecars({name: one}, consumers)))
    assert {len(batch["id"]) for batches in steps for batch in batches} == {8 // consumers}
    found = list(itertools.chain(*global_steps(steps)))
    assert len(found) == len(set(found))
    assert set(found) <= set(ALL)
    if consumers == 1:
        assert len(found) == len(ALL) // 8 * 8


@pytest.mark.parametrize("consumers", [1, 2])
def test_pad_fills_the_last_batch_with_zeros(cluster: Cluster, consumers: int) -> None:
    name = f"pad-{consumers}"
    one = spec("rows:uneven", {"sizes": SIZES}, numSplits=len(SIZES), partitions=4,
               globalBatchSize=8, remainder="Pad")  # fmt: skip
    steps = epoch(readers.read(cluster.add_sidecars({name: one}, consumers)))
    assert {len(batch["id"]) for batches in steps for batch in batches} == {8 // consumers}
    padding = len(steps[0]) * 8 - len(ALL)
    # Row 0 is also a zero.
    counts = Counter(itertools.chain(*global_steps(steps)))
    assert counts == Counter(ALL) + Counter({0: padding})


def test_in_parallel_epochs_each_trainer_reads_all_rows_in_its_own_order(cluster: Cluster) -> None:
    one = spec("rows:shuffled", {"rows": 103}, processingMode="ParallelEpochs")
    read = readers.read(cluster.add_sidecars({"parallel": one}, 2), epochs=2)
    orders = [ids(batches) for epochs in read for batches in epochs]
    assert all(sorted(order) == list(range(103)) for order in orders)
    assert len({tuple(order) for order in orders}) == 4


@pytest.mark.parametrize("consumers", [1, 2])
def test_whole_elements_pass_unchanged(cluster: Cluster, consumers: int) -> None:
    # The user's own batches of 6; the last one of a split is smaller. There is no global batch.
    name = f"whole-{consumers}"
    one = spec("rows:uneven", {"sizes": SIZES, "batch": 6}, numSplits=len(SIZES), partitions=4)
    steps = epoch(readers.read(cluster.add_sidecars({name: one}, consumers)))
    elements = [ids([element]) for batches in steps for element in batches]
    assert sorted(itertools.chain(*elements)) == ALL
    before = 0
    for size in SIZES:
        split = list(range(before, before + size))
        before += size
        for start in range(0, size, 6):
            assert split[start : start + 6] in elements
    assert len(elements) == sum(-(-size // 6) for size in SIZES)


@pytest.mark.parametrize("consumers", [1, 2])
def test_an_endless_dataset_repeats_its_rows(cluster: Cluster, consumers: int) -> None:
    name = f"endless-{consumers}"
    one = spec("rows:endless", {"rows": 12}, partitions=4, globalBatchSize=4)
    sidecars = cluster.add_sidecars({name: one}, consumers)
    steps = global_steps(epoch(readers.read(sidecars, epochs=1, steps=30)))
    # Each of the four partitions repeats its three rows, one row per step.
    assert Counter(itertools.chain(*steps)) == dict.fromkeys(range(12), 10)
    assert steps[:3] == steps[3:6]
