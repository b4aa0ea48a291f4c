"""The canonical form has the same bytes in every run of a program."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.canonical import canonicalize, fingerprint, serialize
from tests.unit.distributed_input.graph.graphcases import elements, random_number, run

PROGRAM = """
import sys
import hashlib
import tensorflow as tf
from distributed_input.graph.definition import node_defs, serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed

if sys.argv[2] == "busy":  # counters of all kinds go on
    busy = tf.data.Dataset.range(3).map(lambda x: x + tf.Variable(1, dtype=tf.int64) if 0 else x)
    list(busy.shuffle(3).cache().map(lambda x: tf.cast(x, tf.float32) * 2.0))
    tf.function(lambda x: x + 1)(1)
    tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["q"], [1]), 0)

table = tf.lookup.StaticVocabularyTable(tf.lookup.TextFileInitializer(
    sys.argv[1], tf.string, 0, tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER), 2)
words = tf.strings.as_string(tf.range(500))
table2 = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(words, tf.range(500)), -1)
offset = tf.Variable([1.0, 2.0])

@tf.function
def augment(x):
    return x + tf.random.uniform([2]) * offset

def parse(word):
    number = table.lookup(word) + tf.cast(table2.lookup(word), tf.int64)
    scale = tf.cond(number > 1, lambda: 2.0, lambda: augment(tf.zeros([2]))[0])
    return {"n": number, "x": augment(tf.ones([2])) * scale, "w": word}

words = tf.data.Dataset.from_tensor_slices(["a", "b", "z"]).shuffle(3).cache()
other = tf.data.Dataset.range(3).interleave(lambda i: tf.data.Dataset.range(i).shuffle(2))
both = tf.data.Dataset.zip((words.map(parse), other)).repeat().batch(2)
sampled = tf.data.Dataset.sample_from_datasets([both, both]).prefetch(2)
print(hashlib.sha256(node_defs.to_bytes(serialize(sampled))).hexdigest())
few = sampled.take(5)
epoch = serialization.instantiate(reseed(serialize(few), 1, 2, 3), few.element_spec)
print([str(element) for element in epoch.as_numpy_iterator()])
"""


@pytest.mark.slow
def test_bytes_and_rows_are_the_same_in_every_process(tmp_path: Path) -> None:
    words = tmp_path / "words"
    words.write_text("a\nb\nc\n")
    outputs = set()
    for number, state in enumerate(["idle", "busy"]):
        environment = {**os.environ, "PYTHONHASHSEED": str(number), "TF_CPP_MIN_LOG_LEVEL": "3"}
        environment["PYTHONPATH"] = os.pathsep.join(sys.path)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, str(words), state],
            env=environment,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
        outputs.add(done.stdout)
    assert len(outputs) == 1


def table_of(value: int) -> tf.lookup.StaticHashTable:
    keys = tf.constant(["a"])
    return tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(keys, [value]), -1)


def lookup(value: int) -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors("a").map(table_of(value).lookup)


def test_canonicalizing_twice_changes_nothing() -> None:
    dataset = lookup(3).map(lambda x: (x, random_number(), random_number())).shuffle(2)
    graph_def = serialize(dataset)
    assert node_defs.to_bytes(canonicalize(graph_def)) == node_defs.to_bytes(graph_def)


def test_different_datasets_have_different_bytes() -> None:
    def digest(dataset: tf.data.Dataset) -> str:
        return hashlib.sha256(node_defs.to_bytes(serialize(dataset))).hexdigest()

    datasets = [
        lookup(3),
        lookup(4),
        lookup(3).map(lambda x: x + 1),
        lookup(3).map(lambda x: x + 2),
    ]
    assert len({digest(dataset) for dataset in datasets}) == 4


def test_tables_with_different_content_are_not_shared() -> None:
    three, four = lookup(3), lookup(4)
    first = serialization.instantiate(serialize(three), three.element_spec)
    second = serialization.instantiate(serialize(four), four.element_spec)
    both = tf.data.Dataset.zip((first, second, first))
    assert elements(both) == [(3, 4, 3)]


def test_the_graph_does_not_refer_to_this_process() -> None:
    dataset = tf.data.Dataset.range(9).shuffle(9).cache()
    with tf.device("CPU:0"):
        dataset = dataset.map(lambda x: x + 1)
    elements(dataset)
    text = str(serialize(dataset))
    assert "SeedGenerator" not in text
    assert "MemoryCache" not in text
    assert "job:localhost" not in text


def test_every_instance_has_its_own_cache() -> None:
    dataset = tf.data.Dataset.range(5).map(lambda _: random_number()).cache()
    graph_def = serialize(dataset)
    mine, again = (run(graph_def, dataset.element_spec) for _ in range(2))
    assert mine != again  # unseeded, and not each other's


def test_unused_nodes_are_removed() -> None:
    graph_def = serialization.serialize_raw(tf.data.Dataset.range(3))
    graph_def.node.add(name="unused", op="NoOp")
    assert "unused" not in [node.name for node in canonicalize(graph_def).node]


def test_an_object_of_this_process_is_rejected_with_a_remedy(tmp_path: Path) -> None:
    iterator = iter(tf.data.Dataset.range(3))
    dataset = tf.data.Dataset.range(3).map(lambda _: iterator.get_next())
    with pytest.raises(DatasetFnError, match="entry point"):
        serialize(dataset)


def test_new_keras_layers_of_the_same_seed_have_the_same_bytes() -> None:
    keras = pytest.importorskip("keras")

    def build() -> tf.data.Dataset:
        layers = keras.Sequential(
            [keras.layers.RandomFlip(seed=1), keras.layers.RandomZoom(0.3, seed=2)]
        )
        image = tf.zeros([4, 4, 3])
        return tf.data.Dataset.range(3).map(lambda _: layers(image, training=True))

    assert serialize(build()) == serialize(build())


def files(index: int, count: int = 3, names: tuple[str, ...] = ("a", "b", "c")) -> Any:
    dataset = tf.data.Dataset.from_tensor_slices(list(names)).shard(count, index)
    return serialize(dataset.map(lambda name: tf.strings.join([name, "x"])))


def test_each_constant_counts() -> None:
    values = {
        fingerprint(files(0)), fingerprint(files(1)), fingerprint(files(1, 4)),
        fingerprint(files(1, names=("a", "b"))), fingerprint(files(1, names=("a", "b", "d"))),
    }  # fmt: skip
    assert len(values) == 5
    assert fingerprint(files(1)) in values


def test_without_the_shard_only_the_files_count() -> None:
    common = {fingerprint(files(index), without_shard=(3, index)) for index in range(3)}
    assert len(common) == 1
    assert fingerprint(files(0, names=("a", "b")), without_shard=(3, 0)) not in common


def test_other_arguments_of_a_shard_count() -> None:
    found = {fingerprint(files(index), without_shard=(3, 0)) for index in range(3)}
    assert len(found) == 3
    folded = [
        fingerprint(
            serialize(tf.data.Dataset.range(40).shard(2, fold).shard(4, 3)), without_shard=(4, 3)
        )
        for fold in range(2)
    ]
    assert len(set(folded)) == 2


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
    fingerprint(graph, without_shard=(3, 1))
    assert graph.SerializeToString(deterministic=True) == before
