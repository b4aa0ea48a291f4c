from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.graph import inline_maps
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.datasets import MAPS, kind
from distributed_input.graph.definition.serialization import instantiate
from distributed_input.graph.determinism import force_determinism

_AUTO = tf.data.AUTOTUNE
_Build = Callable[[], tf.data.Dataset]


def _inlined(dataset: tf.data.Dataset) -> tf.data.Dataset | None:
    graph = serialize(dataset)
    if not inline_maps.can_inline(graph):
        return None
    graph = inline_maps.inline_maps(graph)
    found = [node for node in node_defs.all_nodes(graph) if kind(node.op) in MAPS]
    assert {node.op for node in found} == {"MapDataset"}
    return instantiate(graph, dataset.element_spec).with_options(inline_maps.options())


def _list(dataset: tf.data.Dataset) -> list[Any]:
    def value(one: Any) -> Any:
        return one.to_list() if isinstance(one, tf.RaggedTensor) else np.asarray(one).tolist()

    return [[value(leaf) for leaf in tf.nest.flatten(element)] for element in dataset]


def _table() -> tf.data.Dataset:
    words = tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([0, 1], tf.int64))
    table = tf.lookup.StaticVocabularyTable(words, 1)
    lines = tf.data.Dataset.from_tensor_slices(["a b", "b c a", ""])
    return lines.map(lambda line: table.lookup(tf.strings.split(line)), num_parallel_calls=4)


def _nested() -> tf.data.Dataset:
    def files(number: tf.Tensor) -> tf.data.Dataset:
        return tf.data.Dataset.range(number).map(lambda it: it * it, num_parallel_calls=2)

    return tf.data.Dataset.range(5).interleave(files, num_parallel_calls=2, deterministic=True)


def _random() -> tf.data.Dataset:
    def shift(row: tf.Tensor) -> tf.Tensor:
        return tf.random.stateless_uniform([3], [row, 7])

    return tf.data.Dataset.range(9).map(shift, num_parallel_calls=_AUTO).batch(2)


def _checked() -> tf.data.Dataset:
    def check(row: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(row, tf.constant(100, tf.int64))
        return tf.nest.map_structure(tf.identity, row)

    return tf.data.Dataset.range(9).map(check, num_parallel_calls=3, deterministic=False)


def _loop() -> tf.data.Dataset:
    def count(row: tf.Tensor) -> tf.Tensor:
        return tf.map_fn(lambda it: it + 1, tf.range(row))

    return tf.data.Dataset.range(3).map(count, num_parallel_calls=2)


def _condition() -> tf.data.Dataset:
    def change(row: tf.Tensor) -> tf.Tensor:
        return tf.cond(row > 1, lambda: row * 2, lambda: row - 1)

    return tf.data.Dataset.range(3).map(change, num_parallel_calls=2)


@pytest.mark.parametrize("build", [_table, _nested, _random, _checked, _loop, _condition])
def test_rows_stay(build: _Build) -> None:
    dataset = build()
    found = _inlined(dataset)
    assert found is not None
    in_order = serialize(dataset)
    force_determinism(in_order)
    assert _list(found) == _list(instantiate(in_order, dataset.element_spec))


def _switch(row: tf.Tensor) -> tf.Tensor:
    false, true = tf.raw_ops.Switch(data=row, pred=row > 1)
    return tf.raw_ops.Merge(inputs=[false + 1, true * 2]).output


def _called(row: tf.Tensor) -> tf.Tensor:
    return tf.function(tf.reduce_mean)(tf.fill([4], tf.cast(row, tf.float32)))


@pytest.mark.parametrize(
    ("function", "in_one_thread"),
    [
        (lambda row: row * 2, True),
        (lambda row: tf.cast(row, tf.float32) / 255.0, True),
        (lambda row: tf.reduce_sum(tf.fill([4], row)), True),
        (lambda row: tf.strings.split(tf.as_string(row)), True),
        (lambda row: tf.reduce_sum(tf.fill([4], tf.cast(row, tf.float32))), False),
        (lambda row: tf.image.resize(tf.fill([4, 4, 3], row), [2, 2]), False),
        (_called, False),
        (_switch, False),
    ],
)
def test_only_exact_functions_run_in_one_thread(
    function: Callable[[tf.Tensor], tf.Tensor], in_one_thread: bool
) -> None:
    """The sum of floats depends on the number of threads, and that executor does not limit it."""
    dataset = tf.data.Dataset.range(4).map(function, num_parallel_calls=2)
    graph = inline_maps.inline_maps(serialize(dataset))
    (node,) = (node for node in graph.node if kind(node.op) in MAPS)
    assert node.attr["use_inter_op_parallelism"].b is not in_one_thread
    found = _inlined(dataset)
    assert found is not None
    assert _list(found) == _list(dataset)


def _python() -> tf.data.Dataset:
    def python(row: tf.Tensor) -> tf.Tensor:
        return tf.numpy_function(lambda it: it, [row], tf.int64)

    return tf.data.Dataset.range(3).map(lambda it: it + 1).map(python, num_parallel_calls=2)


def _reads() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(__file__).map(tf.io.read_file, num_parallel_calls=2)


def _calls() -> tf.data.Dataset:
    return tf.data.Dataset.from_tensors(__file__).map(tf.function(tf.io.read_file))


def _inner() -> tf.data.Dataset:
    def total(row: tf.Tensor) -> tf.Tensor:
        return tf.data.Dataset.range(row).reduce(row, lambda a, b: a + b)

    return tf.data.Dataset.range(3).map(total, num_parallel_calls=2)


def _stateful() -> tf.data.Dataset:
    return tf.data.Dataset.range(3).map(lambda _: tf.random.uniform([]))


@pytest.mark.parametrize("build", [_python, _reads, _calls, _inner, _stateful])
def test_maps_that_may_wait_stay_parallel(build: _Build) -> None:
    assert _inlined(build()) is None


def test_a_dataset_without_maps_stays() -> None:
    assert _inlined(tf.data.Dataset.range(3).batch(2)) is None


def _finalized(dataset: tf.data.Dataset) -> set[str]:
    """Return the datasets that TensorFlow runs, after it has optimized them."""
    variant = tf.data.experimental.to_variant(dataset)
    final = tf.raw_ops.FinalizeDataset(
        input_dataset=variant, output_types=[tf.int64], output_shapes=[[None]]
    )
    graph = tf.raw_ops.DatasetToGraphV2(input_dataset=final, external_state_policy=1)
    nodes = tf.compat.v1.GraphDef.FromString(graph.numpy()).node
    return {kind(node.op) for node in nodes} - {""}


def test_tensorflow_does_not_make_the_maps_parallel_again() -> None:
    rows = tf.data.Dataset.range(9).map(lambda it: it + 1).batch(2)
    assert {"MapAndBatch", "ParallelMap"} & _finalized(rows)
    found = _inlined(rows)
    assert found is not None
    assert _finalized(found) >= {"Map", "Range"}
