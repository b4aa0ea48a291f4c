"""Ops that keep a state are found in functions that run in parallel."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import tensorflow as tf

from distributed_input.tfdata.determinism import serial_ops
from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.random.order_dependence import find

Data = tf.data.Dataset


def sample(_: tf.Tensor) -> tf.Tensor:
    return tf.random.uniform_candidate_sampler([[1]], 1, 1, True, 5)[0]


def add_noise(total: tf.Tensor, _: tf.Tensor) -> tuple[tf.Tensor, ...]:
    return total + tf.random.uniform([]), total


def interleaved(parallel: int | None) -> Data:
    return Data.range(3).interleave(
        lambda _: Data.range(3).scan(0.0, add_noise), cycle_length=4, num_parallel_calls=parallel
    )


PARALLEL: dict[str, Callable[[int | None], Data]] = {
    "UniformCandidateSampler": lambda n: Data.range(3).map(sample, num_parallel_calls=n),
    "RandomUniform": interleaved,
}


@pytest.mark.parametrize("op", PARALLEL)
def test_a_random_op_that_keeps_its_state_is_found_in_parallel_functions_only(op: str) -> None:
    assert [it.op for it in serial_ops(serialize(PARALLEL[op](4)))] == [op]
    assert serial_ops(serialize(PARALLEL[op](None))) == []


def test_an_op_has_the_name_of_its_function() -> None:
    (found,) = serial_ops(serialize(Data.range(3).map(sample, num_parallel_calls=4)))
    assert found.function == "Dataset_map_sample"


@pytest.mark.parametrize("parallel", [None, 4])
def test_a_changed_variable_is_found_in_any_function(parallel: int | None) -> None:
    count = tf.Variable(0, dtype=tf.int64)
    dataset = Data.range(3).map(count.assign_add, num_parallel_calls=parallel)
    assert [it.op for it in serial_ops(serialize(dataset))] == ["AssignAddVariableOp"]


def test_variables_tables_assertions_and_python_that_are_only_read_are_not_found() -> None:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer([1, 2], [3, 4], tf.int64, tf.int64), -1
    )
    weights = tf.Variable([1, 2, 3], dtype=tf.int64)

    def read(row: tf.Tensor) -> tf.Tensor:
        tf.debugging.assert_less(row, tf.constant(5, tf.int64))
        called = tf.numpy_function(lambda x: x, [row], tf.int64)
        return table.lookup(row) + weights[row] + called

    dataset = Data.range(3).map(read, num_parallel_calls=4)
    assert find(serialize(dataset)) == []
