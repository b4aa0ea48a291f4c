"""Random values that depend on the element, not on the order in which calls run.

A random op of TensorFlow keeps a state: its values depend on how many calls came before. Functions
that run for several elements at once would get other values in each run. So every random op in a
function becomes a stateless op of a key. The key is a number of the element, which is assigned in
the order of the elements.

A key is two int64 numbers. An op combines it with its own seeds. A loop changes it in every
iteration. A dataset inside a function makes the keys of its own elements from it.

The keys are a dataset of random numbers, zipped with the input. TensorFlow pairs them one element
at a time, in the order of the input, also if it then calls the function for several elements at
once. A dataset that is repeated gets other keys in each repetition.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from tensorflow.core.framework import function_pb2

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import FILTERS, FLATTENS, MAPS, kind
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef
from distributed_input.graph.definition.random_ops import attr_seeds, seed_inputs
from distributed_input.graph.random import generators, stateless_ops
from distributed_input.graph.random.function_bodies import (
    FunctionBody,
    append_input,
    mix_read,
    mix_state,
    number_pair,
    replace_draw,
)

_LOOPS = ("While", "StatelessWhile")
_ADVANCES = frozenset(["AssignVariableOp", "AssignAddVariableOp", "RngSkip"])
_READS = frozenset(["ReadVariableOp", generators.DRAW])
_RANDOM = stateless_ops.REPLACED | _ADVANCES | {generators.DRAW}
"""The ops without which a graph has nothing to replace."""
_PER_ELEMENT = MAPS | FLATTENS | {"MapAndBatch"}
"""Datasets that call one function for each element of their first input."""
_SELECTING = FILTERS | {"TakeWhile"}
"""Datasets that return the elements of their first input for which a function is true."""
_ZIP = "/element_keys/zip"
_NUMBERS, _SELECTED = "/element_keys/numbers", "/element_keys/selected"
DROPS_KEY = "distributed_input_drop_key_"
"""The names of the functions of `_drop_keys` begin with it."""
_OLD_LOOPS = frozenset(["Enter", "RefEnter", "NextIteration"])  # a node runs several times
_MAX_FUNCTIONS = 20_000
_INT64 = tf.int64.as_datatype_enum
# The same for all epochs and datasets: the seeds of the ops differ.
_KEY_SEEDS = number_pair("elements")
# An iteration of a loop adds a number to the key. A loop multiplies the key first, so that the
# iterations of a loop in a loop differ from those of the outer loop.
_STEP = number_pair("iteration")
_LOOP = tuple(number | 1 for number in number_pair("loop"))


def key_elements(graph_def: GraphDef) -> None:
    """Make the random ops of a graph functions of the element, in place.

    The graph is canonical, with the seeds of an epoch. Random ops that are not supported stay as
    they are; see `determinism.order_dependent_ops`.
    """
    if _RANDOM.isdisjoint(node.op for node in node_defs.all_nodes(graph_def)):
        return
    functions = _KeyedFunctions(graph_def)
    for node in list(graph_def.node):
        if _takes_keys(node) and functions.calls_random(node):
            seeds = [
                node_defs.add_const(graph_def.node, f"{node.name}/element_keys/seed{i}", seed).name
                for i, seed in enumerate(_KEY_SEEDS)
            ]
            functions.key_elements(graph_def.node, node, seeds, inside=False)
    if functions.added:
        graph_def.library.function.extend(functions.added.values())
        _remove_unused(graph_def)


def _remove_unused(graph_def: GraphDef) -> None:
    used = node_defs.called_functions(node_defs.library(graph_def), graph_def.node).values()
    copies = list(map(copy.deepcopy, used))
    del graph_def.library.function[:]
    graph_def.library.function.extend(copies)


class _KeyedFunctions:
    """The functions of a graph, and their copies that take a key.

    `added` has the new functions by name.
    """

    def __init__(self, graph_def: GraphDef) -> None:
        self._library = node_defs.library(graph_def)
        self._states = generators.state_arguments(graph_def)
        self._random = node_defs.functions_with(self._library, self._needs_key)
        self._drawing = node_defs.functions_with(
            self._library, lambda function, _: bool(self._states[function.signature.name])
        )
        self._copies: dict[tuple[str, int, bool], str] = {}
        self._ordinal = 0
        self.added: dict[str, FunctionDef] = {}

    def calls_random(self, node: NodeDef) -> bool:
        """Return whether a node calls a function that contains something that needs a key."""
        return not self._random.isdisjoint(node_defs.called(node))

    def keyed(self, name: str, captures: int = 0, loop: bool = False) -> str:
        """Return the name of the copy of a function that takes a key before its captures.

        Each call of a function that draws from a generator gets a copy: the draws are independent.
        The key comes before the last `captures` arguments. The body of a loop also returns the key
        of the next iteration.
        """
        function = self._library[name]
        index = len(function.signature.input_arg) - captures
        key = name, index, loop
        shared = name not in self._drawing or len(self.added) >= _MAX_FUNCTIONS
        if shared and key in self._copies:
            return self._copies[key]
        body = FunctionBody(function, f"{name}_keyed_{len(self.added)}", index)
        keyed = self._copies[key] = str(body.function.signature.name)
        self.added[keyed] = body.function
        self._replace_all(body, self._states[name])
        if loop:
            body.add_result("next_key", body.mix("next_key", "AddV2", *_STEP))
        return keyed

    def key_elements(self, nodes: Any, node: NodeDef, seeds: Sequence[str], inside: bool) -> None:
        """Let the function of a dataset op take a key for each element, in place.

        `seeds` are references to the seeds of the keys.
        """
        (ref,) = node_defs.function_refs(node)
        captures = len(node.attr["Targuments"].list.type)  # values besides elements
        types = [argument.type for argument in self._library[ref.name].signature.input_arg]
        types = types[: len(types) - captures]
        _add_keys(nodes, node, types, seeds, inside)
        ref.name = self.keyed(ref.name, captures)
        function = _drop_keys(nodes, node, types, inside)
        if function is not None:
            self.added[function.signature.name] = function

    def _needs_key(self, function: FunctionDef, node: NodeDef) -> bool:
        if node.op == "ReadVariableOp":
            state = node_defs.source_of(node.input[0])
            return state in self._states[function.signature.name]
        return node.op in stateless_ops.REPLACED or node.op == generators.DRAW

    def _replace_all(self, body: FunctionBody, states: frozenset[str]) -> None:
        nodes = list(body.function.node_def)
        if any(node.op in _OLD_LOOPS for node in nodes):
            return
        for node in nodes:
            first = node_defs.source_of(node.input[0]) if node.input else ""
            seeds = attr_seeds(node) if "seed" in node.attr else None  # or a generator
            if node.op in stateless_ops.REPLACED and (seeds is not None or first in states):
                self._replace_random(body, node, seeds)
            elif first in states and node.op in _ADVANCES:
                _remove(node)
            elif first in states and node.op in _READS:
                self._replace_read(body, node)
            elif self.calls_random(node):
                self._key_functions(body, node)

    def _key_functions(self, body: FunctionBody, node: NodeDef) -> None:
        """Pass keys to the functions of a node, if it is known how the node calls them."""
        if node.op in self._library:
            node.op = self.keyed(node.op)
            append_input(node, body.key)
        elif node.op in generators.CALLS:
            self._pass_key(body, node)
        elif _takes_keys(node):
            pair = body.add("Unpack", f"{node.name}/seeds", [body.key], {"T": _INT64})
            pair.attr["num"].i, pair.attr["axis"].i = 2, 0
            seeds = [f"{pair.name}:output:{i}" for i in range(2)]
            self.key_elements(body.function.node_def, node, seeds, inside=True)

    def _replace_random(
        self, body: FunctionBody, node: NodeDef, seeds: tuple[int, int] | None
    ) -> None:
        """Replace a random op that has seeds, or else a generator."""
        key = body.mix(f"{node.name}/key", "BitwiseXor", *(seeds or self._next_place()))
        if seeds is None:
            key = mix_state(body, node, key)
        function = stateless_ops.replace(node, key)
        if function is not None:
            self.added[function.signature.name] = function

    def _replace_read(self, body: FunctionBody, node: NodeDef) -> None:
        """Combine the state of a generator, which is now constant, with the key."""
        key = body.mix(f"{node.name}/key", "BitwiseXor", *self._next_place())
        if node.op == generators.DRAW:
            replace_draw(body, node, key)
        else:
            mix_read(body, node, key)

    def _next_place(self) -> tuple[int, int]:
        """Return numbers that no other draw from a generator uses."""
        self._ordinal += 1
        return number_pair("draw", self._ordinal)

    def _pass_key(self, body: FunctionBody, node: NodeDef) -> None:
        """Pass the key to the functions that an op calls."""
        loop = node.op in _LOOPS
        for attribute in sorted(node.attr):
            value = node.attr[attribute]
            refs = [value.func] if value.WhichOneof("value") == "func" else value.list.func
            for ref in refs:
                ref.name = self.keyed(ref.name, loop=loop and attribute == "body")
        node.attr[generators.CALLS[node.op][1]].list.type.append(_INT64)
        if loop and node.attr["output_shapes"].list.shape:
            node.attr["output_shapes"].list.shape.add().dim.add(size=2)
        key = body.mix(f"{node.name}/loop_key", "Mul", *_LOOP) if loop else body.key
        append_input(node, key)


def _remove(node: NodeDef) -> None:
    """Turn a node without outputs into one that does nothing."""
    node.op, node.input[:] = "NoOp", node_defs.control_inputs(node)
    node.attr.clear()


def has_keys(node: NodeDef) -> bool:
    """Return whether a node zips elements with their keys, which are its second input."""
    return node.op == "ZipDataset" and node.name.endswith(_ZIP)


def reorders(node: NodeDef) -> bool:
    """Return whether an op may draw which elements it returns, or their order."""
    return node.name.endswith(_SELECTED) or (
        seed_inputs(node.op) is not None and not node.name.endswith(_NUMBERS)
    )


def _takes_keys(node: NodeDef) -> bool:
    """Return whether a dataset op calls one function for each element of its first input."""
    return kind(node.op) in _PER_ELEMENT | _SELECTING


def _add_keys(
    nodes: Any, node: NodeDef, types: Sequence[int], seeds: Sequence[str], in_function: bool
) -> None:
    """Zip the input of a dataset op with keys, in place.

    The function of the op must take the key after the components of an element, which have these
    types. `seeds` are references to the two seeds of the keys.
    """
    name = f"{node.name}/element_keys"
    handle, output = (":handle:0", ":output:0") if in_function else ("", "")

    def add(op: str, part: str, inputs: Sequence[str]) -> NodeDef:
        return nodes.add(op=op, name=f"{name}/{part}", input=inputs)

    def add_const(part: str, value: Any, dtype: Any) -> str:
        return str(node_defs.add_const(nodes, f"{name}/{part}", value, dtype).name) + output

    generator = add("DummySeedGenerator", "generator", ())
    numbers = add("RandomDatasetV2", _NUMBERS.rpartition("/")[2], (*seeds, generator.name + handle))
    numbers.attr["rerandomize_each_iteration"].b = True
    _describe(numbers, [_INT64], [_shape([])])
    size = add_const("size", 2, tf.int64)
    whole = add_const("whole", True, tf.bool)
    pairs = add("BatchDatasetV2", "pairs", (numbers.name + handle, size, whole))
    pairs.attr["parallel_copy"].b = False
    _describe(pairs, [_INT64], [_shape([2])])
    source = node_defs.data_inputs(node)[0]
    both = add("ZipDataset", "zip", (source, pairs.name + handle))
    both.attr["N"].i = 2
    _describe(both, [*types, _INT64], [*_shapes(nodes, source, len(types)), _shape([2])])
    node.input[0] = both.name + handle


def _drop_keys(
    nodes: Any, node: NodeDef, types: Sequence[int], in_function: bool
) -> FunctionDef | None:
    """Remove the keys from the elements of a dataset op that returns those of its input, in place.

    The op becomes a map of a copy of itself. Return the function of the map, which belongs into the
    library; None if the op returns no keys.
    """
    if kind(node.op) not in _SELECTING:
        return None
    selecting = nodes.add()
    selecting.CopyFrom(node)
    selecting.name = node.name + _SELECTED
    shapes = list(selecting.attr["output_shapes"].list.shape)
    for attribute in ("output_types", "output_shapes"):
        selecting.attr[attribute].Clear()
    _describe(selecting, [*types, _INT64], [*shapes, _shape([2])])
    function = function_pb2.FunctionDef()
    function.signature.name = DROPS_KEY + "_".join(map(str, types))
    for number, dtype in enumerate((*types, _INT64)):
        function.signature.input_arg.add(name=f"component{number}", type=dtype)
    for number, dtype in enumerate(types):
        function.signature.output_arg.add(name=f"result{number}", type=dtype)
        function.ret[f"result{number}"] = f"component{number}"
    node.op = "MapDataset"
    node.input[:] = [selecting.name + (":handle:0" if in_function else "")]
    node.attr.clear()
    node.attr["f"].func.name = function.signature.name
    node.attr["Targuments"].list.SetInParent()
    node.attr["use_inter_op_parallelism"].b = False
    node.attr["preserve_cardinality"].b = True
    _describe(node, types, shapes)
    return function


def _shapes(nodes: Any, source: str, count: int) -> list[Any]:
    found = node_defs.by_name(nodes).get(node_defs.source_of(source))
    known = list(found.attr["output_shapes"].list.shape) if found is not None else []
    return known if len(known) == count else [_shape(None)] * count


def _shape(dimensions: Sequence[int] | None) -> Any:
    return tf.TensorShape(dimensions).as_proto()


def _describe(node: NodeDef, types: Sequence[int], shapes: Sequence[Any]) -> None:
    node.attr["output_types"].list.type.extend(types)
    node.attr["output_shapes"].list.shape.extend(shapes)
    node.attr["metadata"].s = b""
