"""Nodes are found by their names and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.tfdata.graph import node_defs


def nodes_of(inputs: list[list[int]]) -> list[Any]:
    """Return one node for each entry, with the nodes of these indexes as its inputs."""
    return [
        tf.compat.v1.NodeDef(name=f"n{index}", op="NoOp", input=[f"n{below}" for below in found])
        for index, found in enumerate(inputs)
    ]


@st.composite
def acyclic(draw: st.DrawFn) -> list[list[int]]:
    count = draw(st.integers(1, 12))
    return [
        draw(st.lists(st.integers(0, index - 1), max_size=3)) if index else []
        for index in range(count)
    ]


@given(acyclic())
def test_ancestors_come_once_and_after_their_inputs(inputs: list[list[int]]) -> None:
    nodes = nodes_of(inputs)
    order = [node.name for node in node_defs.ancestors(node_defs.by_name(nodes), nodes[-1])]
    assert order[-1] == nodes[-1].name
    assert len(set(order)) == len(order)
    for node in nodes:
        if node.name in order:
            assert all(order.index(name) < order.index(node.name) for name in node.input)


@pytest.mark.parametrize("name", ["a", "^a", "a:1", "a:output:0"])
def test_all_forms_of_an_input_name_its_node(name: str) -> None:
    assert node_defs.source_of(name) == "a"


def test_control_inputs_are_no_data_inputs() -> None:
    node = tf.compat.v1.NodeDef(name="n", op="NoOp", input=["a", "^b", "c:1"])
    assert node_defs.data_inputs(node) == ["a", "c:1"]


@given(st.integers(-(1 << 62), 1 << 62))
def test_an_added_constant_has_its_value(value: int) -> None:
    nodes: list[Any] = []
    node = node_defs.add_const(nodes, "c", value)
    user = tf.compat.v1.NodeDef(name="n", op="Identity", input=["c"])
    assert node_defs.const_value(node) == value
    assert node_defs.input_value(node_defs.by_name(nodes), user, 0) == value
    assert node_defs.input_value(node_defs.by_name(nodes), user, 1) is None
    assert node_defs.const_value(user) is None
