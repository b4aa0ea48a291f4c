"""A trainer's plain tf.data.Dataset, sharded for it: every row once, by every policy."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.errors import ConfigError
from tests.integration import devices, reading
from tests.integration.cluster import Cluster, Sidecar, spec
from tests.integration.datasets import rows as datasets
from tests.integration.reading import ids

assert devices.CPUS  # configured before TensorFlow starts

SIZES = [5, 0, 17, 1, 30, 8, 2]
COUNT = sum(SIZES)
Policy = tf.data.experimental.AutoShardPolicy
UNSHARDABLE = "we cannot find appropriate reader dataset op"  # as TensorFlow says it


@pytest.fixture(scope="module")
def pattern(tmp_path_factory: pytest.TempPathFactory) -> str:
    return datasets.write_files(tmp_path_factory.mktemp("files"), SIZES)


def from_files(pattern: str) -> tf.data.Dataset:
    """Files in shuffled order, their rows shuffled, in batches of 8."""
    files = tf.data.Dataset.list_files(pattern)
    rows = files.interleave(tf.data.TFRecordDataset, num_parallel_calls=2).shuffle(20)
    return rows.map(lambda record: {"id": tf.io.decode_raw(record, tf.int64)[0]}).batch(8)


def from_memory() -> tf.data.Dataset:
    return tf.data.Dataset.range(COUNT).shuffle(30).map(lambda row: {"id": row}).batch(8)


def with_policy(dataset: tf.data.Dataset, policy: Policy) -> tf.data.Dataset:
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = policy
    return dataset.with_options(options)


def read(
    sidecars: list[Sidecar], dataset: tf.data.Dataset, epochs: int = 2
) -> tuple[list[list[list[int]]], list[str]]:
    """Row ids as [epoch][consumer], and the job's warnings."""
    told: list[str] = []

    def reading_as(sidecar: Sidecar) -> list[list[int]]:
        with reading.connect(sidecar) as data:
            made = data.dataset(dataset)
            told.extend(data.warnings)
            return [ids(made.as_numpy_iterator()) for _ in range(epochs)]

    # Threads share Python's list of warnings: what is warned of is looked at in `warnings`.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = reading.at_once([lambda sidecar=s: reading_as(sidecar) for s in sidecars])
    return [list(one) for one in zip(*found, strict=True)], told


@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("policy", [Policy.FILE, Policy.DATA, Policy.AUTO])
def test_files(cluster: Cluster, pattern: str, policy: Policy, consumers: int) -> None:
    name = f"files-{policy.name.lower()}-{consumers}"
    sidecars = cluster.add_sidecars({name: spec(partitions=4)}, consumers)
    epochs, told = read(sidecars, with_policy(from_files(pattern), policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(COUNT))
    assert epochs[0] != epochs[1]
    if policy == Policy.DATA:
        assert any("reads and computes the whole dataset" in text for text in told)
    else:
        assert told == []


@pytest.mark.parametrize("policy", [Policy.DATA, Policy.AUTO])
def test_memory(cluster: Cluster, policy: Policy) -> None:
    sidecars = cluster.add_sidecars({f"memory-{policy.name.lower()}": spec()}, 2)
    epochs, told = read(sidecars, with_policy(from_memory(), policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(COUNT))
    assert any(UNSHARDABLE in text for text in told) == (policy == Policy.AUTO)


def test_off_gives_everything_to_each(cluster: Cluster) -> None:
    sidecars = cluster.add_sidecars({"memory-off": spec()}, 2)
    epochs, _ = read(sidecars, with_policy(from_memory(), Policy.OFF))
    for epoch in epochs:
        for trainer in epoch:
            assert sorted(trainer) == list(range(COUNT))


def test_a_fallback_is_warned_of_in_the_trainer(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"warned": spec()})
    with reading.connect(sidecar) as data:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "DATA sharding")
            with pytest.warns(UserWarning, match=UNSHARDABLE):
                data.dataset(from_memory())


@pytest.mark.parametrize("policy", [Policy.FILE, Policy.HINT])
def test_a_policy_that_cannot_be_applied_is_refused(cluster: Cluster, policy: Policy) -> None:
    (sidecar,) = cluster.add_sidecars({f"refused-{policy.name.lower()}": spec()})
    with reading.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=rf"auto_shard_policy {policy.name}.*set\s"):
            data.dataset(with_policy(from_memory(), policy))


def test_a_dataset_that_calls_python_is_refused(cluster: Cluster) -> None:
    def halve(row: Any) -> Any:
        return row // 2

    dataset = tf.data.Dataset.range(8).map(lambda row: tf.py_function(halve, [row], tf.int64))
    (sidecar,) = cluster.add_sidecars({"calls-python": spec()})
    with reading.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=r"calls Python.*entry point"):
            data.dataset(dataset.map(lambda row: tf.ensure_shape(row, [])))


def test_a_trainer_that_starts_anew_may_bring_another_dataset(cluster: Cluster) -> None:
    """Its sidecar lives on: a container that restarts, or the next cell of a notebook."""
    (sidecar,) = cluster.add_sidecars({"changed": spec(partitions=2, numSplits=2)})
    for count in (20, 30):
        rows = tf.data.Dataset.range(count).map(lambda row: {"id": row})
        with reading.connect(sidecar) as data:
            dataset = data.dataset(lambda ctx, rows=rows: sharded(rows, ctx), global_batch_size=4)
            assert sorted(ids(dataset.as_numpy_iterator())) == list(range(count))


def sharded(rows: tf.data.Dataset, ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    return rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
