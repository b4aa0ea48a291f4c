"""Random generators that keep their state in variables: who uses them, and new keys for each epoch.

These are `tf.random.Generator` and the seed generators of Keras layers. The latter increment a
variable and use it as the seed of a stateless op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import tensorflow as tf
from tensorflow.python.framework import tensor_util

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef

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
CALLS = {
    "PartitionedCall": (0, "Tin"),
    "StatefulPartitionedCall": (0, "Tin"),
    "While": (0, "T"),
    "StatelessWhile": (0, "T"),
    "If": (1, "Tin"),
    "StatelessIf": (1, "Tin"),
    "Case": (1, "Tin"),
    "StatelessCase": (1, "Tin"),
}
"""Ops that call functions: the number of inputs before the arguments, the attribute with their
types."""
_RESOURCE = tf.resource.as_datatype_enum
_BITS = 31  # the most that Keras supports


def rekey(graph_def: GraphDef, key_of: Callable[[list[int], frozenset[str]], int]) -> None:
    """Replace the keys of a graph's generators, in place.

    `key_of` returns the new key, by a generator's state and the functions that use it.
    """
    used = _users(graph_def, _Captures(graph_def))
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
    captures = _Captures(graph_def)
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


def _users(graph_def: GraphDef, captures: _Captures) -> dict[str, frozenset[str]]:
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


class _Captures:
    """Maps the arguments of a graph's functions to the graph's variables."""

    def __init__(self, graph_def: GraphDef) -> None:
        self._library = node_defs.library(graph_def)
        self._main = node_defs.by_name(graph_def.node)
        self._callers: dict[str, list[tuple[str, NodeDef]]] = {}
        for scope, nodes in node_defs.scopes(graph_def).items():
            for node in nodes:
                for ref in node_defs.function_refs(node):
                    self._callers.setdefault(ref.name, []).append((scope, node))

    def variables(self, function: FunctionDef, argument: str) -> set[str]:
        """Return the names of the VarHandleOps that an argument may be; empty if unknown."""
        return set(self._variables(function.signature.name, argument, frozenset()))

    def _variables(self, name: str, argument: str, seen: frozenset[str]) -> Iterator[str]:
        arguments = [it.name for it in self._library[name].signature.input_arg]
        if name in seen or argument not in arguments:
            return
        for scope, node in self._callers.get(name, []):
            at = _input_of(node, arguments.index(argument), len(arguments))
            inputs = node_defs.data_inputs(node)
            if at is None or at >= len(inputs):
                continue
            nodes = node_defs.by_name(self._library[scope].node_def) if scope else self._main
            source = node_defs.source_of(inputs[at])
            while source in nodes and nodes[source].op == "Identity":
                source = node_defs.source_of(nodes[source].input[0])
            if source in nodes:
                if not scope and nodes[source].op == "VarHandleOp":
                    yield source
            elif scope:
                yield from self._variables(scope, source, seen | {name})


def _input_of(node: NodeDef, argument: int, arguments: int) -> int | None:
    """Return the input index of a function's argument in a node that calls the function."""
    if node.op in CALLS:
        return CALLS[node.op][0] + argument
    definition = node_defs.op_def(node.op)
    at = 0
    for it in definition.input_arg if definition is not None else ():
        size = 1
        if it.type_list_attr:
            size = len(node.attr[it.type_list_attr].list.type)
        elif it.number_attr:
            size = node.attr[it.number_attr].i
        if it.name == "other_arguments":  # the captures are the last arguments
            captured = argument - (arguments - size)
            return at + captured if captured >= 0 else None
        at += size
    return None
