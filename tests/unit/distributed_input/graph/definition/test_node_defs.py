"""Nodes are found by their names and inputs."""

from __future__ import annotations

from typing import Any

import pytest
import tensorflow as tf
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.graph.definition import node_defs


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
    assert node_defs.control_inputs(node) == ["^b"]


@st.composite
def calls(draw: st.DrawFn) -> list[set[int]]:
    """Return which functions each function calls; some call themselves, also through others."""
    count = draw(st.integers(1, 8))
    return [draw(st.sets(st.integers(0, count - 1), max_size=3)) for _ in range(count)]


@given(calls(), st.data())
def test_called_functions_are_found_through_all_calls(
    graph: list[set[int]], data: st.DataObject
) -> None:
    graph_def = tf.compat.v1.GraphDef()
    for number, found in enumerate(graph):
        function = graph_def.library.function.add()
        function.signature.name = f"f{number}"
        function.node_def.add(op="NoOp", name=f"n{number}")
        for below in found:
            node = function.node_def.add(op="PartitionedCall")
            node.attr["f"].func.name = f"f{below}"
    library = node_defs.library(graph_def)
    reached = [{number} for number in range(len(graph))]
    for _ in graph:
        reached = [one.union(*(graph[below] for below in one)) for one in reached]
    marked = data.draw(st.sets(st.integers(0, len(graph) - 1)))
    names = {f"n{number}" for number in marked}
    assert node_defs.functions_with(library, lambda _, node: node.name in names) == {
        f"f{number}" for number, found in enumerate(reached) if found & marked
    }
    for number, found in enumerate(reached):
        call = tf.compat.v1.NodeDef(op=f"f{number}")
        assert set(node_defs.called_functions(library, [call])) == {f"f{one}" for one in found}


@given(st.integers(-(1 << 62), 1 << 62))
def test_an_added_constant_has_its_value(value: int) -> None:
    nodes: list[Any] = []
    node = node_defs.add_const(nodes, "c", value)
    user = tf.compat.v1.NodeDef(name="n", op="Identity", input=["c"])
    assert node_defs.const_value(node) == value
    assert node_defs.input_value(node_defs.by_name(nodes), user, 0) == value
    assert node_defs.input_value(node_defs.by_name(nodes), user, 1) is None
    assert node_defs.const_value(user) is None
