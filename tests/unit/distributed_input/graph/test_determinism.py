"""Datasets keep their order, and functions that keep a state run one element at a time."""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import tensorflow as tf

from distributed_input.graph import determinism
from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.determinism import force_determinism, run_serially, serial_ops
from distributed_input.graph.user_code import fixed_randomness
from tests.unit.distributed_input.graph.graphcases import module_of

Data = tf.data.Dataset


def unordered(rows: Data) -> Data:
    return rows.map(lambda row: row + 1, num_parallel_calls=4, deterministic=False)


def test_nondeterministic_datasets_become_deterministic_also_in_functions() -> None:
    nested = Data.range(3).interleave(
        lambda row: unordered(Data.range(row)),
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
    graph_def = serialize(Data.range(9).map(lambda row: row, num_parallel_calls=4))
    before = graph_def.SerializeToString(deterministic=True)
    force_determinism(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before


def drawn(dataset: Data) -> list[float]:
    return [float(row) for row in dataset]


def test_a_dataset_without_a_graph_runs_serially() -> None:
    def draw(row: tf.Tensor) -> tf.Tensor:
        return tf.cond(row >= 0, lambda: tf.random.uniform([], seed=3), lambda: 0.0)

    def build(parallel: int) -> Data:
        signature = tf.TensorSpec([], tf.int64)
        rows = Data.from_generator(lambda: iter(range(400)), output_signature=signature)
        options = tf.data.Options()
        options.threading.private_threadpool_size = 16
        return run_serially(rows.map(draw, num_parallel_calls=parallel)).with_options(options)

    with fixed_randomness(1):
        one = drawn(build(1))
    with fixed_randomness(1):
        assert drawn(build(64)) == one


def test_a_dataset_that_runs_serially_keeps_its_functions_and_variables() -> None:
    count = tf.Variable(0, dtype=tf.int64)
    dataset = Data.range(5).map(count.assign_add)
    serial = run_serially(serialization.instantiate(serialize(dataset), dataset.element_spec))
    gc.collect()
    assert [int(row) for row in serial] == [0, 1, 3, 6, 10]


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
    assert serial_ops(serialize(dataset)) == []


_CODE = """
import tensorflow as tf

def plain(row):
    return row + 1

def branch(row):
    return tf.cond(
        row > 1,
        lambda: tf.random.uniform([]),
        lambda: 0.0,
    )

def sample(row):
    return tf.random.uniform_candidate_sampler([[1]], 1, 1, True, 5)[0]
"""


@pytest.fixture
def functions(tmp_path: Path) -> Iterator[ModuleType]:
    with module_of(tmp_path, "functions_of_test", _CODE) as module:
        yield module


def test_an_op_has_the_line_of_the_user(functions: ModuleType) -> None:
    dataset = Data.range(3).map(functions.sample).map(lambda _: 1).batch(2)
    number = 1 + _CODE.split("\n").index(next(it for it in _CODE.split("\n") if "candidate" in it))
    line = determinism.lines_of(dataset)["UniformCandidateSampler"]
    assert line == f"{functions.__file__}:{number}"


def test_random_ops_are_found_in_branches_and_inputs(functions: ModuleType) -> None:
    assert not determinism.depend_on_order(Data.range(3).map(functions.plain))
    for function in (functions.branch, functions.sample):
        dataset = Data.range(3).map(function).map(lambda _: 1)
        assert determinism.depend_on_order(dataset)


def test_a_generator_alone_does_not_depend_on_the_order() -> None:
    signature = tf.TensorSpec([], tf.int64)
    dataset = Data.from_generator(lambda: iter(range(3)), output_signature=signature)
    assert not determinism.depend_on_order(dataset.map(lambda row: row + 1))
