"""The trainer's own dataset: a dataset that cannot be sent, and one that changes.

tests/compat tests how a plain dataset is sharded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from testing.integration import devices, readers
from testing.integration.cluster import Cluster, spec
from testing.integration.readers import ids

assert devices.CPUS  # configured before TensorFlow starts


def test_a_dataset_that_calls_python_is_refused(cluster: Cluster) -> None:
    def halve(row: Any) -> Any:
        return row // 2

    dataset = tf.data.Dataset.range(8).map(lambda row: tf.py_function(halve, [row], tf.int64))
    (sidecar,) = cluster.add_sidecars({"calls-python": spec()})
    with readers.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=r"calls Python.*entry point"):
            data.dataset(dataset.map(lambda row: tf.ensure_shape(row, [])))


def test_a_restarted_trainer_may_provide_another_dataset(cluster: Cluster) -> None:
    """The sidecar continues, as when a container restarts or a notebook runs its next cell."""
    (sidecar,) = cluster.add_sidecars({"changed": spec(partitions=2, numSplits=2)})
    for count in (20, 30):
        rows = tf.data.Dataset.range(count)
        with readers.connect(sidecar) as data:
            dataset = data.dataset(lambda ctx, rows=rows: sharded(rows, ctx), global_batch_size=4)
            assert sorted(ids(dataset.as_numpy_iterator())) == list(range(count))


def sharded(rows: tf.data.Dataset, ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    mine = rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return mine.map(lambda row: {"id": row})


@pytest.mark.filterwarnings("ignore:DATA sharding")
def test_pairs_of_two_readers_stay_together(cluster: Cluster, tmp_path: Path) -> None:
    def lines(files: int) -> tf.data.Dataset:
        names = [str(tmp_path / f"{files}-{index}") for index in range(files)]
        for index, name in enumerate(names):
            rows = range(index * 24 // files, (index + 1) * 24 // files)
            Path(name).write_text("".join(f"{row}\n" for row in rows))
        return tf.data.TextLineDataset(names)

    pairs = tf.data.Dataset.zip((lines(6), lines(3))).batch(8)
    (sidecar,) = cluster.add_sidecars({"pairs": spec(partitions=4)})
    with readers.connect(sidecar) as data:
        with pytest.warns(UserWarning, match="what ZipDataset returns depends on rows of several"):
            steps = list(data.dataset(pairs).as_numpy_iterator())
    for step, (values, labels) in enumerate(steps):
        assert list(values) == list(labels)
        assert sorted(map(int, values)) == list(range(8 * step, 8 * step + 8))
    assert len(steps) == 3


@pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")
def test_elements_of_an_unknown_kind_are_divided_among_replicas(cluster: Cluster) -> None:
    def batches() -> tf.data.Dataset:
        parts = [tf.data.Dataset.range(first, first + 40).batch(16) for first in (0, 40)]
        return tf.data.Dataset.choose_from_datasets(parts, tf.data.Dataset.range(2).repeat())

    strategy = tf.distribute.MirroredStrategy(devices.CPUS)

    def steps(dataset: Any) -> list[list[list[int]]]:
        local = map(strategy.experimental_local_results, dataset)
        return [[replica.numpy().tolist() for replica in step] for step in local]

    (sidecar,) = cluster.add_sidecars({"whole": spec()})
    with readers.connect(sidecar) as data:
        found = steps(data.distribute(strategy, batches()))
    assert sorted(found) == sorted(steps(strategy.experimental_distribute_dataset(batches())))


@pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")
def test_a_dataset_that_stops_at_the_first_end_ends(cluster: Cluster) -> None:
    rows = [tf.data.Dataset.range(8), tf.data.Dataset.range(100, 103).repeat()]
    chosen = tf.data.Dataset.choose_from_datasets(rows, tf.data.Dataset.range(2).repeat()).batch(4)
    (sidecar,) = cluster.add_sidecars({"chosen": spec(partitions=2)})
    with readers.connect(sidecar) as data:
        found = np.concatenate(list(data.dataset(chosen).as_numpy_iterator()))
    assert sorted(found) == sorted(np.concatenate(list(chosen.as_numpy_iterator())))


@pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding")
@pytest.mark.parametrize("plain", [True, False])
def test_rows_are_padded_to_the_longest_one_of_a_step(cluster: Cluster, plain: bool) -> None:
    numbers = tf.data.Dataset.range(1, 33)

    def lines(rows: tf.data.Dataset) -> tf.data.Dataset:
        return rows.map(lambda x: tf.fill([1 + x % 7], x))

    whole = lines(numbers).padded_batch(8, padding_values=tf.constant(-1, tf.int64))

    def dataset_fn(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        mine = lines(numbers.shard(ctx.num_input_pipelines, ctx.input_pipeline_id))
        size = ctx.get_per_replica_batch_size(8)
        return mine.padded_batch(size, padding_values=tf.constant(-1, tf.int64))

    name = f"padded-{plain}".lower()
    (sidecar,) = cluster.add_sidecars({name: spec(partitions=4)})
    with readers.connect(sidecar) as data:
        steps = list(data.dataset(whole if plain else dataset_fn).as_numpy_iterator())
    assert sorted(row[0] for step in steps for row in step) == list(range(1, 33))
    for step in steps:
        assert step.shape == (8, max(1 + row[0] % 7 for row in step))
        for row in step:
            assert list(row) == [row[0]] * (1 + row[0] % 7) + [-1] * (
                step.shape[1] - 1 - row[0] % 7
            )
    if plain:
        expected = whole.as_numpy_iterator()
        assert [sorted(step.tolist()) for step in steps] == [
            sorted(one.tolist()) for one in expected
        ]


@pytest.mark.filterwarnings("ignore:In AUTO-mode", "ignore:DATA sharding", "ignore:RepeatDataset")
@pytest.mark.parametrize("name", ["ragged", "none", "empty"])
def test_a_rare_dataset_has_the_rows_of_tensorflow(cluster: Cluster, name: str) -> None:
    batches = tf.data.Dataset.range(6).batch(2, drop_remainder=True)
    dataset = {
        "ragged": tf.data.Dataset.from_tensor_slices(tf.ragged.constant([[1], [2, 2], []])),
        "none": batches.map(lambda x: (x, None)),
        "empty": tf.data.Dataset.from_tensors([1]).batch(8, drop_remainder=True).repeat(),
    }[name]

    def rows(elements: Any) -> list[list[int]]:
        parts = [tf.nest.flatten(element)[0].numpy().tolist() for element in elements]
        return sorted(parts if name == "ragged" else [[row] for part in parts for row in part])

    (sidecar,) = cluster.add_sidecars({f"rare-{name}": spec()})
    with readers.connect(sidecar) as data:
        assert rows(data.dataset(dataset)) == rows(dataset)
