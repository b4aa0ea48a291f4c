"""A dataset whose last op batches rows gets another batch size. Its rows do not change."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.tfdata.graph import serialization
from distributed_input.tfdata.graph.batch_size import with_batch_size
from distributed_input.tfdata.graph.canonical import serialize

ROWS = tf.data.Dataset.range(23).map(lambda x: (x, tf.fill([3], x)))


def with_options(data: Any) -> Any:
    options = tf.data.Options()
    options.deterministic = True
    return data.with_options(options)


ENDS: dict[str, Callable[[Any, int], Any]] = {
    "batch": lambda data, size: data.batch(size),
    "prefetch": lambda data, size: data.batch(size).prefetch(2),
    "options": lambda data, size: with_options(data.batch(size).prefetch(1)),
}
OTHERS: dict[str, Callable[[Any], Any]] = {
    "rows": lambda data: data,
    "drop_remainder": lambda data: data.batch(4, drop_remainder=True),
    "a map of batches": lambda data: data.batch(4).map(lambda x, y: (x + tf.reduce_sum(x), y)),
    "a padded batch": lambda data: data.padded_batch(4),
    "batches of files": lambda data: data.window(4).flat_map(lambda x, y: x.batch(2)),
}


@settings(max_examples=20, deadline=None)
@given(st.sampled_from(list(ENDS)), st.integers(1, 30), st.integers(1, 30))
def test_rows_stay_and_elements_have_the_size(end: str, before: int, rows: int) -> None:
    data = ENDS[end](ROWS, before)
    graph = with_batch_size(serialize(data), rows)
    assert graph is not None
    elements = [x.numpy().tolist() for x, _ in serialization.instantiate(graph, data.element_spec)]
    assert [row for element in elements for row in element] == list(range(23))
    assert all(len(element) == rows for element in elements[:-1])
    assert 0 < len(elements[-1]) <= rows


@pytest.mark.parametrize("name", OTHERS)
def test_other_datasets_keep_their_elements(name: str) -> None:
    assert with_batch_size(serialize(OTHERS[name](ROWS)), 7) is None


def test_the_graph_itself_does_not_change() -> None:
    graph = serialize(ROWS.batch(4))
    before = graph.SerializeToString(deterministic=True)
    assert with_batch_size(graph, 7) is not None
    assert graph.SerializeToString(deterministic=True) == before
