"""`MultiWorkerMirroredStrategy` with 2 and with 4 trainer processes."""

from __future__ import annotations

import itertools

import pytest

from testing.compat import multiworker
from testing.compat.behaviour import Reference, behaviour
from testing.compat.multiworker import BATCH, ROWS
from testing.compat.trainer_processes import Results, run_trainers
from testing.integration.cluster import Cluster, spec
from testing.integration.datasets import rows as datasets

STRATEGIES = Reference.STRATEGIES
FILES = [5, 0, 17, 1, 30, 8, 2, 11]
GPUS = "GPUs: each process here has one replica, on its CPU"


@pytest.fixture(scope="module", params=[2, 4], ids=lambda n: f"{n} processes")
def results(
    request: pytest.FixtureRequest, shared: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """Run this number of trainers once. Each test looks at a part of the results."""
    inputs = {name: spec(partitions=4, numSplits=8) for name in multiworker.INPUTS}
    pattern = datasets.write_files(tmp_path_factory.mktemp("files"), FILES)
    return run_trainers("multiworker", shared.add_sidecars(inputs, request.param), pattern)


def steps_of(results: Results, part: str) -> list[list[int]]:
    """Return the rows of every step over all trainers."""
    counts = {len(one[part]) for one in results}
    assert len(counts) == 1, "all trainers must have the same number of steps"
    return [list(itertools.chain(*step)) for step in zip(*(o[part] for o in results), strict=True)]


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy` with 2 and 4 processes: each gets its part of every step,"
    " all have the same number of steps, every row arrives once per epoch",
    call="`train.distribute(strategy, dataset_fn)`",
    needs=GPUS,
)
def test_each_process_gets_its_part_of_every_step(results: Results) -> None:
    assert {one["replicas"] for one in results} == {len(results)}
    for epoch in range(2):
        own_results = [{"epoch": one["dataset-fn"][epoch]} for one in results]
        steps = steps_of(own_results, "epoch")
        assert sorted(itertools.chain(*steps)) == list(range(ROWS))
        assert all(len(step) == BATCH for step in steps[: ROWS // BATCH])
        assert all(
            len(rows) == BATCH // len(results)
            for one in own_results
            for rows in one["epoch"][: ROWS // BATCH]
        )


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: a dataset of files, sharded among the processes by FILE",
    call="`train.distribute(strategy, dataset)`",
)
def test_files_are_sharded_among_the_processes(results: Results) -> None:
    rows = list(itertools.chain(*steps_of(results, "files")))
    assert sorted(rows) == list(range(sum(FILES)))


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: `get_next_as_optional` in a `tf.function`; `reduce` over"
    " the rows of all processes, with the mean of partial and empty batches",
    call="`iter(train.distribute(strategy, dataset_fn))`",
)
def test_reductions_include_the_rows_of_all_processes(results: Results) -> None:
    first = results[0]["function"]
    assert all(one["function"] == first for one in results)
    assert sum(total for total, _ in first) == sum(range(ROWS))
    counts = [round(total / mean) if mean else 0 for total, mean in first]
    assert sum(counts) == pytest.approx(ROWS, abs=1)  # a step may have only row 0


@behaviour(
    STRATEGIES,
    shows="`MultiWorkerMirroredStrategy`: `get_next` raises `tf.errors.OutOfRangeError` in all"
    " processes after the same step",
    call="`iter(train.distribute(strategy, dataset_fn)).get_next()`",
)
def test_all_processes_end_after_the_same_step(results: Results) -> None:
    assert len({one["out-of-range"] for one in results}) == 1
    assert results[0]["out-of-range"] == len(results[0]["function"])


@behaviour(
    Reference.KERAS,
    shows="`model.fit` with `MultiWorkerMirroredStrategy`: the same result as TensorFlow's input",
    call="`model.fit(train.distribute(strategy, dataset_fn))`",
    note="Keras 3.15 does not support it with any input (keras-team/keras issue 20585). Use a loop",
)
def test_keras_has_the_same_result_as_with_tensorflows_input(results: Results) -> None:
    for one in results:
        assert one["keras"]["distributed_input"] == one["keras"]["native"]


@behaviour(
    STRATEGIES,
    shows="`ParameterServerStrategy`: the coordinator reads and schedules a step for every batch;"
    " inline evaluation",
    call="`coordinator.schedule(step, args=(batch,))` for each of `train.dataset(dataset_fn)`",
)
@behaviour(
    Reference.WRONG_USE,
    shows="`distribute` with `ParameterServerStrategy`, whose workers cannot run the client",
    call="`ConfigError`: read in the coordinator, or use the tf.data service endpoint",
)
def test_a_coordinator_of_parameter_servers_reads_every_row(shared: Cluster) -> None:
    (results,) = run_trainers(
        "parameter_server_coordinator",
        shared.add_sidecars({"train": spec(partitions=2, numSplits=2)}),
    )
    assert sorted(results["scheduled"]) == sorted(results["inline"]) == list(range(ROWS))
    assert "create_per_worker_dataset read from the stock tf.data service" in results["refused"]
