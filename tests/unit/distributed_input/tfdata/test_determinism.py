"""The datasets of a graph keep their order after `force_determinism`."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.tfdata.determinism import force_determinism
from distributed_input.tfdata.graph.canonical import serialize


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
