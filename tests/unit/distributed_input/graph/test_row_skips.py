"""A split without its first rows has the other rows unchanged, and calls no functions for those."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
import pytest
import tensorflow as tf
from hypothesis import assume, event, example, given, settings
from hypothesis import strategies as st

from distributed_input.graph import row_skips
from distributed_input.graph.analysis.graph_analysis import analyze
from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.element_keys import key_elements
from distributed_input.graph.random.seeds import reseed
from tests.unit.distributed_input.graph.graphcases import write_files

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(30)
CALLS: list[int] = []


def call(x: Any) -> Any:
    def python(value: Any) -> Any:
        CALLS.append(int(value))
        return value * 3

    y = tf.numpy_function(python, [x], tf.int64)
    return tf.ensure_shape(y, [])


def noisy(x: Any) -> Any:
    return tf.cast(x, tf.float32) + tf.random.uniform([])


def batch_sum(x: Any) -> Any:
    return x + tf.reduce_sum(x)


def interleaved() -> Data:
    return ROWS.interleave(lambda i: Data.range(i, i + 2), cycle_length=3).shuffle(9)


def drops(data: Data, rows: int) -> Data:
    return data.batch(rows, drop_remainder=True)


SKIPPED: dict[str, tuple[Callable[[], Data], bool, int]] = {
    "map": (lambda: ROWS.map(call), False, 1),
    "parallel": (lambda: interleaved().map(call, num_parallel_calls=3).prefetch(2), False, 1),
    "random": (lambda: ROWS.shuffle(9).map(noisy, num_parallel_calls=2).map(noisy), False, 1),
    "batch": (lambda: interleaved().map(call).map(noisy).batch(4).prefetch(1), True, 1),
    "parallel batch": (lambda: ROWS.map(call).batch(4, num_parallel_calls=2), True, 1),
    "dropped rows": (lambda: drops(ROWS.map(call), 4), True, 4),
    "padded batch": (lambda: ROWS.map(lambda x: tf.range(x % 4)).padded_batch(4), True, 4),
    "repeated": (lambda: ROWS.shuffle(30).repeat(2).map(call).batch(7), True, 1),
    "batch of batches": (lambda: ROWS.batch(3).map(batch_sum).batch(2), True, 1),
}


def graph_of(data: Data) -> Any:
    graph = reseed(serialize(data), 5, 1, 2)
    key_elements(graph)
    return graph


def elements_of(graph: Any, data: Data) -> list[Any]:
    out = [np.asarray(part) for part in serialization.instantiate(graph, data.element_spec)]
    CALLS[:] = sorted(CALLS)
    return out


def flat(elements: list[Any], batched: bool) -> list[Any]:
    return [row.tolist() for each in elements for row in (each if batched else [each])]


@pytest.mark.parametrize("name", SKIPPED)
@pytest.mark.parametrize("skipped", [0, 4, 5, 12, 28, 40, 400])
def test_the_other_rows_are_unchanged(name: str, skipped: int) -> None:
    make, batched, multiple = SKIPPED[name]
    data = make()
    graph = graph_of(data)
    where = row_skips.find(graph, batched)
    assert where is not None
    assert where.rows == multiple
    skipped -= skipped % multiple
    whole = flat(elements_of(graph, data), batched)
    CALLS.clear()
    rest = flat(elements_of(row_skips.skip(graph, where, skipped), data), batched)
    assert rest == whole[skipped:]
    assert len(CALLS) <= max(0, len(whole) - skipped) + 3  # rows of a batch that is dropped


NOT_SKIPPED: dict[str, tuple[Callable[[], Data], bool]] = {
    "no function": (lambda: ROWS.batch(4), True),
    "shuffle at the end": (lambda: ROWS.map(call).shuffle(9), False),
    "batches that are shuffled": (lambda: ROWS.batch(4).shuffle(9).map(batch_sum), True),
    "map before": (lambda: ROWS.map(call).shuffle(9).map(noisy), False),
    "filter": (lambda: ROWS.filter(lambda x: x > 3).map(call), False),
    "flat_map at the end": (lambda: ROWS.map(call).flat_map(Data.range), False),
    "map of batches": (lambda: ROWS.map(call).batch(4).map(batch_sum).map(lambda x: x), True),
    "random batches": (lambda: ROWS.map(noisy).batch(4).map(noisy).map(noisy), True),
    "map that repeats rows": (lambda: ROWS.batch(8).map(lambda x: tf.repeat(x, 2)), True),
    "map that drops rows": (lambda: ROWS.batch(8).map(lambda x: x[x % 3 > 0]), True),
    "python in a source": (
        lambda: ROWS.flat_map(lambda x: Data.from_tensors(x).map(call)).map(noisy),
        False,
    ),
    "generator": (
        lambda: Data.from_generator(
            lambda: iter(range(9)), output_signature=tf.TensorSpec([], tf.int64)
        ).map(noisy),
        False,
    ),
}


@pytest.mark.parametrize("name", NOT_SKIPPED)
def test_a_dataset_in_which_rows_depend_on_others_skips_none(name: str) -> None:
    make, batched = NOT_SKIPPED[name]
    assert row_skips.find(graph_of(make()), batched) is None


# Steps of random pipelines. A map may change the number of its first dimension: rows, of a batch.
STEPS: dict[str, Callable[[Data], Data]] = {
    "map": lambda data: data.map(lambda x: x * 3),
    "noisy": lambda data: data.map(
        lambda x: x + tf.random.uniform([], maxval=1000, dtype=tf.int64), num_parallel_calls=2
    ),
    "longer": lambda data: data.map(lambda x: tf.repeat(x, 2, axis=0)),
    "shorter": lambda data: data.map(lambda x: x[::2]),
    "varied": lambda data: data.map(lambda x: x[: 1 + tf.reduce_max(x) % 2]),
    "filter": lambda data: data.filter(lambda x: tf.reduce_sum(x) % 3 > 0),
    "shuffle": lambda data: data.shuffle(5),
    "repeat": lambda data: data.repeat(2),
    "batch": lambda data: data.batch(3),
    "drops": lambda data: data.batch(4, drop_remainder=True),
    "padded": lambda data: data.padded_batch(3),
    "unbatch": lambda data: data.unbatch() if data.element_spec.shape.rank > 1 else data,
    "prefetch": lambda data: data.prefetch(1),
}


@pytest.mark.slow
@settings(max_examples=40)
@example(steps=["map", "batch", "longer"], row=3)
@example(steps=["map", "batch", "shorter"], row=6)
@example(steps=["map", "padded", "varied"], row=4)
@example(steps=["noisy", "varied", "padded", "prefetch"], row=7)
@example(steps=["noisy", "drops"], row=9)
@given(steps=st.lists(st.sampled_from(sorted(STEPS)), max_size=5), row=st.integers(0, 70))
def test_a_resume_at_any_row_has_the_rows_of_no_resume(steps: list[str], row: int) -> None:
    data = Data.from_tensor_slices(tf.reshape(tf.range(42, dtype=tf.int64), [21, 2]))
    for step in steps:
        data = STEPS[step](data)
    graph = graph_of(data)
    batched = analyze(serialize(data)).batches.batched
    where = row_skips.find(graph, batched)
    event("skips" if where else "replays")
    if where is None:
        return
    try:
        whole = flat(elements_of(graph, data), batched)
    except tf.errors.InvalidArgumentError:
        assume(False)  # elements of different shapes have no batch
    row -= row % where.rows
    rest = flat(elements_of(row_skips.skip(graph, where, row), data), batched)
    assert rest == whole[row:]


def test_a_function_that_keeps_a_state_is_not_skipped() -> None:
    count = tf.Variable(0, dtype=tf.int64)
    assert row_skips.find(graph_of(ROWS.map(count.assign_add)), False) is None


def test_records_are_read_and_not_decoded(tmp_path: Path) -> None:
    files = Data.from_tensor_slices(write_files(tmp_path, [8, 8]))
    data = files.shard(2, 1).interleave(tf.data.TFRecordDataset)
    data = data.map(lambda text: call(tf.cast(tf.strings.length(text), tf.int64)))
    graph = graph_of(data)
    where = row_skips.find(graph, False)
    assert where is not None
    CALLS.clear()
    assert len(elements_of(row_skips.skip(graph, where, 6), data)) == 2
    assert len(CALLS) == 2
