"""Datasets keep their order, and functions that keep a state run one element at a time."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.tfdata.determinism import force_determinism, run_serially
from distributed_input.tfdata.graph import serialization
from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.user_code import fixed_randomness


def unordered(rows: tf.data.Dataset) -> tf.data.Dataset:
    return rows.map(lambda row: row + 1, num_parallel_calls=4, deterministic=False)


def test_nondeterministic_datasets_become_deterministic_also_in_functions() -> None:
    nested = tf.data.Dataset.range(3).interleave(
        lambda row: unordered(tf.data.Dataset.range(row)),
        num_parallel_calls=2,
        deterministic=False,
    )
    graph_def = serialize(unordered(nested))
    before = str(graph_def).count('s: "false"')
    assert before >= 3
    force_determinism(graph_def)
    assert 's: "false"' not in str(graph_def)
    assert str(graph_def).count('s: "true"') >= before


def test_a_deterministic_graph_does_not_change() -> None:
    graph_def = serialize(tf.data.Dataset.range(9).map(lambda row: row, num_parallel_calls=4))
    before = graph_def.SerializeToString(deterministic=True)
    force_determinism(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def drawn(dataset: tf.data.Dataset) -> list[float]:
    return [float(row) for row in dataset]


def test_a_dataset_without_a_graph_runs_serially() -> None:
    def draw(row: tf.Tensor) -> tf.Tensor:
        return tf.cond(row >= 0, lambda: tf.random.uniform([], seed=3), lambda: 0.0)

    def build(parallel: int) -> tf.data.Dataset:
        signature = tf.TensorSpec([], tf.int64)
        rows = tf.data.Dataset.from_generator(lambda: iter(range(400)), output_signature=signature)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 16
        return run_serially(rows.map(draw, num_parallel_calls=parallel)).with_options(options)

    with fixed_randomness(1):
        one = drawn(build(1))
    with fixed_randomness(1):
        assert drawn(build(64)) == one


def test_a_dataset_that_runs_serially_keeps_its_functions_and_variables() -> None:
    import gc

    count = tf.Variable(0, dtype=tf.int64)
    dataset = tf.data.Dataset.range(5).map(count.assign_add)
    serial = run_serially(serialization.instantiate(serialize(dataset), dataset.element_spec))
    gc.collect()
    assert [int(row) for row in serial] == [0, 1, 3, 6, 10]
