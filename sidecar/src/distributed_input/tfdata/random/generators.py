"""Random generators that keep their state in variables: who uses them, and new keys for each epoch.

These are `tf.random.Generator` and the seed generators of Keras layers. The latter increment a
variable and use it as the seed of a stateless op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.captures import Captures
from distributed_input.tfdata.graph.node_defs import FunctionDef, GraphDef, NodeDef

_DRAWS = frozenset(
    "RngReadAndSkip StatefulUniform StatefulUniformInt StatefulUniformFullInt"
    " StatefulStandardNormalV2 StatefulTruncatedNormal StatefulRandomBinomial".split()
)
_ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp")
DRAW = "RngReadAndSkip"
"""The op by which `tf.random.Generator` reads and advances its state."""
# The index of the key in the state [counter, counter, key], and in [seed, counter] of Keras or
# [counter, key].
_KEYS = {(3,): 2, (2,): 0}
_RESOURCE = tf.resource.as_datatype_enum
_BITS = 31  # the most that Keras supports


def rekey(graph_def: GraphDef, key_of: Callable[[list[int], frozenset[str]], int]) -> None:
    """Replace the keys of a graph's generators, in place.

    Args:
      graph_def: the graph.
      key_of: returns the new key, by a generator's state and the functions that use it.
    """
    used = _users(graph_def, Captures(graph_def))
    nodes = node_defs.by_name(graph_def.node)
    for node in graph_def.node:
        variable = node_defs.source_of(node.input[0]) if node.op == "AssignVariableOp" else ""
        if variable not in used:
            continue
        const = nodes[node_defs.source_of(node.input[1])]
        state = node_defs.const_value(const)
        if state is None or state.shape not in _KEYS or state.dtype.kind not in "iu":
            continue
        state = np.array(state)
        key = key_of([int(number) for number in state], used[variable])
        state[_KEYS[state.shape]] = key % (1 << _BITS)
        const.attr["value"].tensor.CopyFrom(tensor_util.make_tensor_proto(state))
        nodes[variable].attr[node_defs.PRIVATE].b = True


def state_arguments(graph_def: GraphDef) -> dict[str, frozenset[str]]:
    """Return, by function, the arguments that are states which only random ops use.

    Such a state changes only by its own value: no element and no other variable changes it.
    """
    captures = Captures(graph_def)
    variables = node_defs.by_name(graph_def.node)
    states = {it for it in _users(graph_def, captures) if _has_key(variables[it])}
    found: dict[str, dict[str, set[str]]] = {}
    for function in graph_def.library.function:
        resources = (it for it in function.signature.input_arg if it.type == _RESOURCE)
        arguments = found.setdefault(function.signature.name, {})
        for argument in resources:
            arguments[argument.name] = captures.variables(function, argument.name)
        for node in function.node_def:
            if node.op in _ASSIGNS and not _is_advance(function, node):
                states -= arguments.get(node_defs.source_of(node.input[0]), set())
    return {
        name: frozenset(it for it, found in arguments.items() if found and found <= states)
        for name, arguments in found.items()
    }


def _has_key(variable: NodeDef) -> bool:
    shape = tuple(dim.size for dim in variable.attr["shape"].shape.dim)
    return shape in _KEYS and tf.dtypes.as_dtype(variable.attr["dtype"].type).is_integer


def _users(graph_def: GraphDef, captures: Captures) -> dict[str, frozenset[str]]:
    """Return the functions that draw from a generator, by the variable with its state."""
    used: dict[str, frozenset[str]] = {}
    for function in graph_def.library.function:
        for argument in set(_states(function)):
            for variable in captures.variables(function, argument):
                used[variable] = used.get(variable, frozenset()) | {function.signature.name}
    return used


def _is_advance(function: FunctionDef, assign: NodeDef) -> bool:
    """Return whether the new value of a variable depends on its old value only."""
    nodes = node_defs.by_name(function.node_def)
    variable = node_defs.source_of(assign.input[0])
    queue = [assign]
    seen = {assign.name}
    while queue:
        for name in map(node_defs.source_of, node_defs.data_inputs(queue.pop())):
            if name not in nodes and name != variable:
                return False
            if name in nodes and name not in seen:
                seen.add(name)
                queue.append(nodes[name])
    return True


def _states(function: FunctionDef) -> Iterator[str]:
    """Yield the arguments of a function that are the state of a generator."""
    nodes = node_defs.by_name(function.node_def)
    assigned = {node_defs.source_of(n.input[0]) for n in function.node_def if n.op in _ASSIGNS}
    for node in function.node_def:
        if node.op in _DRAWS:
            yield node_defs.source_of(node.input[0])
        elif node.op.startswith("Stateless") and assigned:
            for below in node_defs.ancestors(nodes, node):
                if below.op == "ReadVariableOp" and node_defs.source_of(below.input[0]) in assigned:
                    yield node_defs.source_of(below.input[0])
