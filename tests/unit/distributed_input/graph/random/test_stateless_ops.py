"""Each random op has a stateless op with the same outputs."""

from __future__ import annotations

import pytest
import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.random import stateless_ops


def node_of(op: str) -> node_defs.NodeDef:
    """Return a node with an input for each input of the op, a control input and default types."""
    definition = node_defs.op_def(op)
    inputs = [argument.name for argument in definition.input_arg]
    node = tf.compat.v1.NodeDef(name="draw", op=op, input=[*inputs, "^before"])
    for attr in definition.attr:
        if attr.type == "type":
            allowed = attr.allowed_values.list.type
            node.attr[attr.name].type = allowed[0] if allowed else tf.float32.as_datatype_enum
        elif attr.type == "int":
            node.attr[attr.name].i = 3
    return node


@pytest.mark.parametrize("op", sorted(stateless_ops.REPLACED))
def test_a_replaced_op_has_the_same_outputs_and_one_more_input(op: str) -> None:
    node, before = node_of(op), node_defs.op_def(op)
    function = stateless_ops.replace(node, "key")
    after = node_defs.op_def(node.op)
    names = [argument.name for argument in after.output_arg]
    assert names == [argument.name for argument in before.output_arg]
    assert not after.is_stateful
    assert node.input[-1] == "^before"
    assert sorted(node.input[:-1]) == sorted([*(it.name for it in before.input_arg), "key"])
    if function is None:
        expected = [argument.name for argument in after.input_arg]
        assert [{"key": "seed"}.get(name, name) for name in node.input[:-1]] == expected
        assert {"seed", "seed2"}.isdisjoint(node.attr)
    else:
        assert len(function.signature.input_arg) == len(node.attr["Tin"].list.type)
        stateful = [node_defs.op_def(it.op).is_stateful for it in function.node_def]
        assert not any(stateful)
