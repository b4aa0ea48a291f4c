from __future__ import annotations

from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.graph.fingerprint import fingerprint


def files(index: int, count: int = 3, names: tuple[str, ...] = ("a", "b", "c")) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(list(names)).shard(count, index)
    return serialize(dataset.map(lambda name: tf.strings.join([name, "x"])))


def test_equal_datasets_have_equal_fingerprints() -> None:
    assert fingerprint(files(1)) == fingerprint(files(1))


def test_each_constant_counts() -> None:
    values = {
        fingerprint(files(0)), fingerprint(files(1)), fingerprint(files(1, 4)),
        fingerprint(files(1, names=("a", "b"))), fingerprint(files(1, names=("a", "b", "d"))),
    }  # fmt: skip
    assert len(values) == 5


def test_without_the_shard_only_the_files_count() -> None:
    common = {fingerprint(files(index), without_shard=True) for index in range(3)}
    assert len(common) == 1
    assert fingerprint(files(0, names=("a", "b")), without_shard=True) not in common


def test_the_number_of_earlier_python_functions_does_not_count() -> None:
    def dataset() -> Any:
        def double(x: Any) -> Any:
            return np.int64(2 * x)

        mapped = tf.data.Dataset.range(3).map(lambda x: tf.numpy_function(double, [x], tf.int64))
        return serialize(mapped.map(lambda x: tf.py_function(lambda y: y, [x], tf.int64)))

    assert fingerprint(dataset()) == fingerprint(dataset())


def test_the_hash_of_a_snapshot_does_not_count() -> None:
    """TensorFlow may compute another one for an equal graph."""
    one = serialize(tf.data.Dataset.range(3).snapshot("folder"))
    other = serialize(tf.data.Dataset.range(3).snapshot("folder"))
    (snapshot,) = (node for node in other.node if node.op == "SnapshotDatasetV2")
    snapshot.attr["hash"].i += 1
    assert fingerprint(one) == fingerprint(other)


def test_the_graph_is_not_changed() -> None:
    graph = files(1)
    before = graph.SerializeToString(deterministic=True)
    fingerprint(graph, without_shard=True)
    assert graph.SerializeToString(deterministic=True) == before
