"""New keys, for each epoch, for random generators that keep their state in variables.

These are `tf.random.Generator` and the seed generators of Keras layers. The latter increment a
variable and use it as the seed of a stateless op.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from tensorflow.python.framework import tensor_util

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.captures import Captures
from distributed_input.tfdata.graph.node_defs import FunctionDef, GraphDef

_DRAWS = frozenset(
    "RngReadAndSkip StatefulUniform StatefulUniformInt StatefulUniformFullInt"
    " StatefulStandardNormalV2 StatefulTruncatedNormal StatefulRandomBinomial".split()
)
_ASSIGNS = ("AssignVariableOp", "AssignAddVariableOp")
# The index of the key in the state [counter, counter, key], and in [seed, counter] of Keras or
# [counter, key].
_KEYS = {(3,): 2, (2,): 0}
_BITS = 31  # the most that Keras supports


def rekey(graph_def: GraphDef, key_of: Callable[[list[int], frozenset[str]], int]) -> None:
    """Replace the keys of a graph's generators, in place.

    Args:
      graph_def: the graph.
      key_of: returns the new key, by a generator's state and the functions that use it.
    """
    captures = Captures(graph_def)
    used: dict[str, frozenset[str]] = {}
    for function in graph_def.library.function:
        for argument in set(_states(function)):
            for variable in captures.variables(function, argument):
                used[variable] = used.get(variable, frozenset()) | {function.signature.name}
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
