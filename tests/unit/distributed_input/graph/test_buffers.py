"""Shuffle buffers are bounded by their input, and their memory is estimated."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.graph import buffers
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.random.seeds import reseed
from tests.unit.distributed_input.graph.graphcases import run

Data: TypeAlias = tf.data.Dataset
ROWS = Data.range(60)
HUGE = 10_000_000


def sizes(graph: Any) -> list[int]:
    nodes = node_defs.by_name(graph.node)
    found = [node for node in graph.node if node.op.startswith("Shuffle")]
    return sorted(int(node_defs.input_value(nodes, node, 1)) for node in found)


@pytest.mark.parametrize(
    ("make", "bounded"),
    [
        (lambda: ROWS.shuffle(HUGE), [60]),
        (lambda: ROWS.shard(3, 1).shuffle(HUGE).repeat(2).batch(4), [20]),
        (lambda: ROWS.shuffle(HUGE).shard(3, 1).shuffle(HUGE), [20, 60]),
        (lambda: ROWS.shuffle(HUGE, reshuffle_each_iteration=False).repeat(3), [60]),
        (lambda: ROWS.take(0).shuffle(HUGE), [1]),
        (lambda: ROWS.shuffle(100), [100]),
        (lambda: ROWS.filter(lambda x: x > 9).shuffle(70_000), [70_000]),
        (lambda: ROWS.repeat().shuffle(70_000).take(9), [70_000]),
    ],
)
def test_a_bounded_buffer_has_the_same_order(make: Callable[[], Data], bounded: list[int]) -> None:
    data = make()
    graph = serialize(data)
    orders = []
    for _ in range(2):
        orders.append([run(reseed(graph, 3, epoch, 0), data.element_spec) for epoch in (0, 1)])
        buffers.bound_shuffles(graph)
    assert sizes(graph) == bounded
    assert orders[0] == orders[1]


@pytest.mark.parametrize(
    ("make", "held"),
    [
        (lambda: ROWS.batch(4), 0),
        (lambda: ROWS.shuffle(10), 80),
        (lambda: ROWS.shuffle(HUGE), 480),
        (lambda: ROWS.map(lambda x: tf.zeros([100])).shuffle(10).shuffle(20), 12_000),
        (lambda: ROWS.map(lambda x: (x, tf.as_string(x))).shuffle(10), 720),
        (lambda: ROWS.map(tf.range).shuffle(10), 80),
        (lambda: ROWS.filter(lambda x: x > 9).shuffle(100), 800),
    ],
)
def test_the_memory_of_buffers_is_estimated(make: Callable[[], Data], held: int) -> None:
    assert buffers.held_bytes(serialize(make()))[0] == held


def test_a_buffer_may_hold_less_if_the_number_of_its_elements_is_unknown() -> None:
    assert buffers.held_bytes(serialize(ROWS.filter(lambda x: x > 9).shuffle(100)))[1]
    for known in (ROWS, ROWS.shuffle(9), ROWS.repeat().shuffle(9), ROWS.filter(lambda x: x > 9)):
        assert not buffers.held_bytes(serialize(known))[1]


def test_elements_without_a_fixed_size_are_measured() -> None:
    def measure(dataset: Data) -> int:
        return len(next(iter(dataset)).numpy())

    texts = Data.from_tensor_slices(["x" * 500] * 9)
    assert buffers.held_bytes(serialize(texts.shuffle(4)), measure)[0] == 2000
    assert buffers.held_bytes(serialize(ROWS.shuffle(4)), measure)[0] == 32
    ragged = Data.from_tensor_slices(tf.ragged.constant([[1], [2, 3]])).shuffle(2)
    assert buffers.held_bytes(serialize(ragged), lambda _: 70)[0] == 140
    assert buffers.held_bytes(serialize(texts.shuffle(4)), lambda _: None)[0] == 256
