"""drop_remainder is disabled only if no later op can depend on it."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.tfdata.analysis.batches import (
    disable_drop_remainder,
    with_unknown_batch_size,
)
from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.type_specs import from_tf, to_tf
from tests.unit.distributed_input.tfdata.graphcases import run

Data: TypeAlias = tf.data.Dataset


@given(rows=st.integers(0, 20), size=st.integers(1, 8))
def test_all_rows_remain_in_the_batches(rows: int, size: int) -> None:
    dataset = Data.range(rows).batch(size, drop_remainder=True).prefetch(1)
    graph_def = serialize(dataset)
    assert disable_drop_remainder(graph_def)
    spec = to_tf(with_unknown_batch_size(from_tf(dataset.element_spec)))
    batches = run(graph_def, spec)
    assert [row for batch in batches for row in batch] == list(range(rows))
    assert all(len(batch) == size for batch in batches[:-1])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Data.range(9).batch(4),
        lambda: Data.range(9).batch(4, drop_remainder=True).map(lambda rows: rows + 1),
        lambda: Data.range(9),
    ],
    ids=["not set", "a map depends on it", "no batch"],
)
def test_other_graphs_do_not_change(make: Callable[[], Data]) -> None:
    graph_def = serialize(make())
    before = graph_def.SerializeToString(deterministic=True)
    assert not disable_drop_remainder(graph_def)
    assert graph_def.SerializeToString(deterministic=True) == before
