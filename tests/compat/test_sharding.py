"""`AutoShardPolicy` of a plain dataset: each policy reads every row once over all trainers."""

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
    """Return files in shuffled order, with shuffled rows, in batches of 8."""
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
    """Return the row ids as [epoch][consumer], and the job's warnings."""
    reported: list[str] = []

    def read_as(sidecar: Sidecar) -> list[list[int]]:
        with readers.connect(sidecar) as data:
            input_dataset = data.dataset(dataset)
            reported.extend(data.warnings)
            return [ids(input_dataset.as_numpy_iterator()) for _ in range(epochs)]

    # Threads share Python's list of warnings, so the test looks at `data.warnings`.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        found = readers.run_concurrently([lambda sidecar=s: read_as(sidecar) for s in sidecars])
    return [list(one) for one in zip(*found, strict=True)], reported


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` FILE, DATA and AUTO of a dataset of files: every row once over all"
    " trainers, in a new order each epoch",
    call=CALL,
    note="DATA reads everything for every split, as the guide says; the trainer gets a warning",
)
@behaviour(
    Reference.TPU,
    shows="a dataset of files: the files are sharded among the input pipelines",
    call=CALL,
)
@pytest.mark.parametrize("consumers", [1, 2])
@pytest.mark.parametrize("policy", [Policy.FILE, Policy.DATA, Policy.AUTO])
def test_files_are_read_once_over_all_trainers(
    cluster: Cluster, pattern: str, policy: Policy, consumers: int
) -> None:
    name = f"files-{policy.name.lower()}-{consumers}"
    sidecars = cluster.add_sidecars({name: spec(partitions=4)}, consumers)
    epochs, reported = read(sidecars, with_policy(from_files(pattern), policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(COUNT))
    assert epochs[0] != epochs[1]
    if policy == Policy.DATA:
        assert any("reads and computes the whole dataset" in text for text in reported)
    else:
        assert reported == []


@behaviour(
    Reference.TPU,
    shows="fewer files than input pipelines: some have no rows (FILE), or sharding by DATA (AUTO)",
    call=CALL,
    note="The trainer gets a warning",
)
@pytest.mark.parametrize(
    ("policy", "warning"),
    [(Policy.FILE, "some get no rows"), (Policy.AUTO, "AUTO sharding goes by DATA")],
)
def test_fewer_files_than_pipelines_cause_a_warning(
    cluster: Cluster, tmp_path: Path, policy: Policy, warning: str
) -> None:
    name = f"one-file-{policy.name.lower()}"
    sidecars = cluster.add_sidecars({name: spec(partitions=4)}, 2)
    dataset = from_files(datasets.write_files(tmp_path, [40]))
    epochs, reported = read(sidecars, with_policy(dataset, policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(40))
    assert any(warning in text for text in reported)


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` DATA and AUTO of a dataset without files: sharded at its end",
    call=CALL,
)
@pytest.mark.parametrize("policy", [Policy.DATA, Policy.AUTO])
def test_data_in_memory_is_read_once_over_all_trainers(cluster: Cluster, policy: Policy) -> None:
    sidecars = cluster.add_sidecars({f"memory-{policy.name.lower()}": spec()}, 2)
    epochs, reported = read(sidecars, with_policy(from_memory(), policy))
    for epoch in epochs:
        assert Counter(itertools.chain(*epoch)) == Counter(range(COUNT))
    assert any(UNSHARDABLE in text for text in reported) == (policy == Policy.AUTO)


@behaviour(
    Reference.GUIDE,
    shows="`AutoShardPolicy` OFF: every trainer gets every row",
    call=CALL,
)
@behaviour(
    Reference.TPU,
    shows="sharding turned off in the dataset's options",
    call=CALL,
)
def test_off_gives_every_row_to_every_trainer(cluster: Cluster) -> None:
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
def test_a_fallback_to_data_warns_the_trainer(cluster: Cluster) -> None:
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
    note="`ConfigError` with the remedy: only the tf.data service endpoint supports HINT",
)
@pytest.mark.parametrize("policy", [Policy.FILE, Policy.HINT])
def test_an_unsupported_policy_is_refused(cluster: Cluster, policy: Policy) -> None:
    (sidecar,) = cluster.add_sidecars({f"refused-{policy.name.lower()}": spec()})
    with readers.connect(sidecar) as data:
        with pytest.raises(ConfigError, match=rf"auto_shard_policy {policy.name}.*set\s"):
            data.dataset(with_policy(from_memory(), policy))
