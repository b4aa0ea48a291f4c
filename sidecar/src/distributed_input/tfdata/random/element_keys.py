"""Random values that depend on the element, not on the order in which calls run.

A random op of TensorFlow keeps a state: its values depend on how many calls came before. Functions
that run for several elements at once would get other values in each run. So every random op in a
function becomes a stateless op of a key. The key is a number of the element, which is assigned in
the order of the elements.
"""

from __future__ import annotations

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import FunctionDef, GraphDef
from distributed_input.tfdata.random import key_datasets
from distributed_input.tfdata.random.function_bodies import number_pair
from distributed_input.tfdata.random.keyed_functions import RANDOM, KeyedFunctions

# The same for all epochs and datasets: the seeds of the ops differ.
_SEEDS = number_pair("elements")


def key_elements(graph_def: GraphDef) -> None:
    """Make the random ops of a graph functions of the element, in place.

    Args:
      graph_def: a canonical graph with the seeds of an epoch. Random ops that are not supported
        stay as they are; see `order_dependence.find`.
    """
    ops = (node.op for function in graph_def.library.function for node in function.node_def)
    if RANDOM.isdisjoint(ops):
        return
    functions = KeyedFunctions(graph_def)
    for node in list(graph_def.node):
        called = [ref.name for ref in node_defs.function_refs(node)]
        if key_datasets.takes_keys(node) and any(map(functions.is_random, called)):
            seeds = [
                node_defs.add_const(graph_def.node, f"{node.name}/element_keys/seed{i}", seed).name
                for i, seed in enumerate(_SEEDS)
            ]
            functions.key_elements(graph_def.node, node, seeds, inside=False)
    if functions.added:
        graph_def.library.function.extend(functions.added.values())
        _remove_unused(graph_def)


def _remove_unused(graph_def: GraphDef) -> None:
    library = {function.signature.name: function for function in graph_def.library.function}
    used: dict[str, FunctionDef] = {}
    queue = list(graph_def.node)
    while queue:
        node = queue.pop()
        for name in (node.op, *(ref.name for ref in node_defs.function_refs(node))):
            if name in library and name not in used:
                used[name] = library[name]
                queue += library[name].node_def
    kept = [function for name, function in library.items() if name in used]
    copies = [type(function).FromString(node_defs.to_bytes(function)) for function in kept]
    del graph_def.library.function[:]
    graph_def.library.function.extend(copies)
