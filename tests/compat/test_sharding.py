"""`AutoShardPolicy` of a plain dataset: every row once over all trainers, by every policy."""

from __future__ import annotations

import itertools
import warnings
from collections import Counter
from pathlib import Path

import pytest
import tensorflow as tf

from distributed_input.api.errors import ConfigError
from testing.compat.behaviour import Reference, behaviour
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.datasets import rows as datasets
from testing.integration.readers import ids

SIZES = [5, 0, 17, 1, 30, 8, 2]
COUNT = sum(SIZES)
Policy = tf.data.experimental.AutoShardPolicy
CALL = "the dataset's options; `train.dataset(dataset)`"
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
        with readers.connect(sidecar) as data:
            made = data.dataset(dataset)
            told.extend(data.warnings)
            return [ids(made.as_numpy_iterator()) for _ in range(epochs)]

    # Threads share Python's list of warnings: what is warned of is looked at in `warnings`.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = readers.run_concurrently([lambda sidecar=s: reading_as(sidecar) for s in sidecars])
    return [list(one) for one in zip(*found, strict=True)], told


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` FILE, DATA and AUTO of a dataset of files: every row once over all"
    " trainers, shuffled anew each epoch",
    call=CALL,
    note="DATA reads everything for every split, as the guide says; the trainer is warned",
)
@behaviour(
    Reference.TPU,
    shows="a dataset of files: the files are sharded among the input pipelines",
    call=CALL,
)
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


@behaviour(
    Reference.TPU,
    shows="fewer files than input pipelines: rows for some only (FILE), or sharding by DATA (AUTO)",
    call=CALL,
    note="The trainer is warned",
)
@pytest.mark.parametrize(
    ("policy", "warning"),
    [(Policy.FILE, "some get no rows"), (Policy.AUTO, "AUTO sharding goes by DATA")],
)
def test_one_file(cluster: Cluster, tmp_path: Path, policy: Policy, warning: str) -> None:
    name = f"one-file-{policy.name.lower()}"
    sidecars = cluster.add_sidecars({name: spec(partitions=4)}, 2)
    dataset = from_files(datasets.write_files(tmp_path, [40]))
    epochs, told = read(sidecars, with_policy(dataset, policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(40))
    assert any(warning in text for text in told)


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` DATA and AUTO of a dataset without files: sharded at its end",
    call=CALL,
)
@pytest.mark.parametrize("policy", [Policy.DATA, Policy.AUTO])
def test_memory(cluster: Cluster, policy: Policy) -> None:
    sidecars = cluster.add_sidecars({f"memory-{policy.name.lower()}": spec()}, 2)
    epochs, told = read(sidecars, with_policy(from_memory(), policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(COUNT))
    assert any(UNSHARDABLE in text for text in told) == (policy == Policy.AUTO)


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` OFF: every trainer gets everything",
    call=CALL,
)
@behaviour(
    Reference.TPU,
    shows="sharding turned off in the dataset's options",
    call=CALL,
)
def test_off_gives_everything_to_each(cluster: Cluster) -> None:
    sidecars = cluster.add_sidecars({"memory-off": spec()}, 2)
    epochs, _ = read(sidecars, with_policy(from_memory(), Policy.OFF))
    for epoch in epochs:
        for trainer in epoch:
            assert sorted(trainer) == list(range(COUNT))


@behaviour(
    Reference.TPU,
    shows="no files to shard: sharded at the end of the pipeline, with a warning",
    call=CALL,
)
def test_a_fallback_is_warned_of_in_the_trainer(cluster: Cluster) -> None:
    (sidecar,) = cluster.add_sidecars({"warned": spec()})
    with readers.connect(sidecar) as data:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "DATA sharding")
            with pytest.warns(UserWarning, match=UNSHARDABLE):
                data.dataset(from_memory())


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` HINT, and FILE of a dataset without files",
    call=CALL,
    note="`ConfigError` with the remedy: HINT is of the stock tf.data service endpoint alone",
)
@pytest.mark.parametrize("policy", [Policy.FILE, Policy.HINT])
def test_a_policy_that_cannot_be_applied_is_refused(cluster: Cluster, policy: Policy) -> None:
    (sidecar,) = cluster.add_sidecars({f"refused-{policy.name.lower()}": spec()})
    with readers.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=rf"auto_shard_policy {policy.name}.*set\s"):
            data.dataset(with_policy(from_memory(), policy))
