"""`MultiWorkerMirroredStrategy`: trainers that are processes of their own, 2 and 4 of them."""

from __future__ import annotations

import itertools

import pytest

from testing.compat import multiworker
from testing.compat.behaviour import Reference, behaviour
from testing.compat.multiworker import BATCH, ROWS
from testing.compat.trainer_processes import Told, told_by
from testing.integration.cluster import Cluster, spec
from testing.integration.datasets import rows as datasets

STRATEGIES = Reference.STRATEGIES
FILES = [5, 0, 17, 1, 30, 8, 2, 11]
GPUS = "GPUs: each process here has one replica, on its CPU"


@pytest.fixture(scope="module", params=[2, 4], ids=lambda n: f"{n} processes")
def told(
    request: pytest.FixtureRequest, shared: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Told:
    """One run of so many trainers, of which each test looks at a part."""
    inputs = {name: spec(partitions=4, numSplits=8) for name in multiworker.PARTS}
    pattern = datasets.write_files(tmp_path_factory.mktemp("files"), FILES)
    return told_by("multiworker", shared.add_sidecars(inputs, request.param), pattern)


def steps_of(told: Told, part: str) -> list[list[int]]:
    """The rows of every step over all trainers."""
    counts = {len(one[part]) for one in told}
    assert len(counts) == 1, "all trainers must have the same number of steps"
    return [list(itertools.chain(*step)) for step in zip(*(o[part] for o in told), strict=True)]


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy` of 2 and of 4 processes: each its share of every step, all"
    " the same number of steps, every row once an epoch",
    call="`train.distribute(strategy, dataset_fn)`",
    needs=GPUS,
)
def test_each_process_gets_its_share(told: Told) -> None:
    assert {one["replicas"] for one in told} == {len(told)}
    for epoch in range(2):
        mine = [{"epoch": one["dataset-fn"][epoch]} for one in told]
        steps = steps_of(mine, "epoch")
        assert sorted(itertools.chain(*steps)) == list(range(ROWS))
        assert all(len(step) == BATCH for step in steps[: ROWS // BATCH])
        assert all(
            len(rows) == BATCH // len(told)
            for one in mine
            for rows in one["epoch"][: ROWS // BATCH]
        )


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: a dataset of files sharded among the processes by FILE",
    call="`train.distribute(strategy, dataset)`",
)
def test_files_are_shared_out(told: Told) -> None:
    rows = list(itertools.chain(*steps_of(told, "files")))
    assert sorted(rows) == list(range(sum(FILES)))


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: `get_next_as_optional` in a `tf.function`, `reduce` over"
    " all processes' rows, the mean of partial and empty batches too",
    call="`iter(train.distribute(strategy, dataset_fn))`",
)
def test_reductions_over_all_processes(told: Told) -> None:
    first = told[0]["function"]
    assert all(one["function"] == first for one in told)
    assert sum(total for total, _ in first) == sum(range(ROWS))
    counts = [round(total / mean) if mean else 0 for total, mean in first]
    assert sum(counts) == pytest.approx(ROWS, abs=1)  # a step may be row 0 alone


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: `get_next` raises `tf.errors.OutOfRangeError` in all"
    " processes after the same step",
    call="`iter(train.distribute(strategy, dataset_fn)).get_next()`",
)
def test_all_reach_the_end_together(told: Told) -> None:
    assert len({one["out-of-range"] for one in told}) == 1
    assert told[0]["out-of-range"] == len(told[0]["function"])


@behaviour(
    Reference.KERAS,
    shows="`model.fit` under `MultiWorkerMirroredStrategy`: as with TensorFlow's own input",
    call="`model.fit(train.distribute(strategy, dataset_fn))`",
    note="Keras 3.15 cannot, with any input (keras-team/keras issue 20585): write the loop",
)
def test_keras_in_all_processes(told: Told) -> None:
    for one in told:
        assert one["keras"]["ours"] == one["keras"]["native"]


@behaviour(
    STRATEGIES,
    shows="`ParameterServerStrategy`: the coordinator reads, and schedules a step for every batch;"
    " evaluation inline",
    call="`coordinator.schedule(step, args=(batch,))` for each of `train.dataset(dataset_fn)`",
)
@behaviour(
    Reference.WRONG_USE,
    shows="`ParameterServerStrategy`, whose workers run none of our code, given to `distribute`",
    call="`ConfigError`: read in the coordinator, or from the stock tf.data service endpoint",
)
def test_a_coordinator_of_parameter_servers(shared: Cluster) -> None:
    (told,) = told_by(
        "parameter_server_coordinator",
        shared.add_sidecars({"train": spec(partitions=2, numSplits=2)}),
    )
    assert sorted(told["scheduled"]) == sorted(told["inline"]) == list(range(ROWS))
    assert "create_per_worker_dataset read from the stock tf.data service" in told["refused"]
