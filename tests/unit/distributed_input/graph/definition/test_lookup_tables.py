"""Tables in graphs are stored by value and in the order of their keys."""

from __future__ import annotations

from pathlib import Path

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import serialize
from tests.unit.distributed_input.graph.graphcases import run


def bytes_of(keys: list[int]) -> bytes:
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(
            tf.constant(keys, tf.int64), tf.constant([2 * key for key in keys], tf.int64)
        ),
        -1,
    )
    return node_defs.to_bytes(serialize(tf.data.Dataset.range(3).map(table.lookup)))


@settings(max_examples=10)
@given(st.permutations(range(5)))
def test_the_order_of_insertion_does_not_change_the_graph(keys: list[int]) -> None:
    assert bytes_of(list(keys)) == bytes_of(list(range(5)))


def vocabulary(file: Path) -> tf.data.Dataset:
    initializer = tf.lookup.TextFileInitializer(
        str(file), tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
        tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
    )  # fmt: skip
    table = tf.lookup.StaticHashTable(initializer, -1)
    return tf.data.Dataset.from_tensor_slices(["b", "a", "?"]).map(table.lookup)


def test_a_vocabulary_file_is_not_needed_later(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("a\nb\n")
    dataset = vocabulary(file)
    graph_def = serialize(dataset)
    file.unlink()
    assert str(file) not in str(graph_def)
    assert run(graph_def, dataset.element_spec) == [1, 0, -1]


def test_a_missing_vocabulary_file_is_an_error(tmp_path: Path) -> None:
    file = tmp_path / "words"
    file.write_text("a\n")
    dataset = vocabulary(file)
    file.unlink()
    with pytest.raises(DatasetFnError, match="vocabulary file"):
        serialize(dataset)
