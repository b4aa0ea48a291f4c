"""Which random ops all splits share: those before an op that selects the rows of a split.

Splits must agree on the order of what they select from. Otherwise `shuffle` before `shard` would
repeat some rows and drop others. What comes after the last selection belongs to one split.

`dataset.shard` always selects. Other ops may select by the number of the split that their function
or an argument contains, for example `filter` and `skip`. Such an op is found by a comparison with
other splits: it has another definition there. Ops that keep all elements do not select. What a
Python function does is not known, so an op that may select and calls one, counts as a selection.

A shuffle of what all splits have in common, with `take` or `skip` behind it, is shared too:
programs divide a dataset into parts for training and for validation in this way.
"""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, FunctionDef, GraphDef, NodeDef
from distributed_input.tfdata.graph.random_ops import has_seed_attrs, input_seeds, seed_inputs

KEEPS = frozenset(
    "MapDataset ParallelMapDataset ParallelMapDatasetV2 MapAndBatchDataset NumaMapAndBatchDataset"
    " BatchDataset BatchDatasetV2 ParallelBatchDataset PaddedBatchDataset PaddedBatchDatasetV2"
    " UnbatchDataset RebatchDataset RebatchDatasetV2 PrefetchDataset OptionsDataset ModelDataset"
    " CacheDataset CacheDatasetV2 RepeatDataset ShuffleDataset ShuffleDatasetV2 ShuffleDatasetV3"
    " ShuffleAndRepeatDataset ShuffleAndRepeatDatasetV2 AssertCardinalityDataset"
    " ConcatenateDataset DirectedInterleaveDataset ParseExampleDataset ParseExampleDatasetV2"
    " Identity _Retval".split()
)
"""Ops that return all elements of their inputs, whatever their arguments are."""

Shared: TypeAlias = Mapping[str, frozenset[str]]
"""The names of the shared nodes of a graph (key "") and of its functions."""
Definitions: TypeAlias = frozenset[bytes]
"""Digests of the ops of a graph, without what comes before them."""

_VARIANT, _RESOURCE = tf.variant.as_datatype_enum, tf.resource.as_datatype_enum
_NOT_DEFINING = frozenset("seed seed2 metadata output_types output_shapes Toutput_types".split())


def references(num_splits: int) -> list[int]:
    """Return the splits that each split is compared with.

    If splits use the remainder or the quotient of their number, these splits have different ones.
    """
    return sorted({0, min(1, num_splits - 1), num_splits - 1})


def define(graph_def: GraphDef) -> Definitions:
    """Return the definitions of the ops of a canonical graph."""
    ops = _Ops(graph_def)
    scopes = (graph_def.node, *(function.node_def for function in graph_def.library.function))
    found: set[bytes] = set()
    for scope in scopes:
        nodes = node_defs.by_name(scope)
        for node in scope:
            if _is_dataset(node) or node.op in KEEPS:
                found |= {ops.definition(nodes, node), ops.arguments(nodes, node)}
    return frozenset(found)


def find(graph_def: GraphDef, others: Callable[[], Sequence[Definitions]] = tuple) -> Shared:
    """Return the nodes of a graph that have the same seeds in all splits.

    Args:
      graph_def: the canonical graph of a split.
      others: returns the definitions of other splits; see `references`. It is called if the
        graph has ops that may select. None: all splits have the same functions and arguments.
    """
    search = _Search(_Ops(graph_def), functools.cache(others))
    search.visit("", graph_def.node, everything=False)
    _add_aligned(graph_def, search.shared)
    return {scope: frozenset(names) for scope, names in search.shared.items() if names}


def has_random_order(graph_def: GraphDef) -> bool:
    """Return whether random ops may define which rows a split has, or their order."""
    ops = _Ops(graph_def)
    scopes = (graph_def.node, *(function.node_def for function in graph_def.library.function))
    return any(
        seed_inputs(node.op) is not None
        or (node.op not in KEEPS and _is_dataset(node) and ops.is_random(node))
        for scope in scopes
        for node in scope
    )


class _Ops:
    """The definitions of ops: everything except the datasets that are their inputs."""

    def __init__(self, graph_def: GraphDef) -> None:
        self.library: dict[str, FunctionDef] = {
            function.signature.name: function for function in graph_def.library.function
        }
        self._digests: dict[str, bytes] = {}
        self._has: dict[tuple[str, str], bool] = {}

    def definition(self, nodes: dict[str, NodeDef], node: NodeDef) -> bytes:
        """Return the digest of an op with its functions and arguments."""
        called = [self._function(name) for name in self.called(node)]
        return _digest("op", self.arguments(nodes, node), called)

    def arguments(self, nodes: dict[str, NodeDef], node: NodeDef) -> bytes:
        """Return the digest of an op without its functions."""
        seeds = seed_inputs(node.op) or ()
        inputs = [
            self._value(nodes, name)
            for i, name in enumerate(node_defs.data_inputs(node))
            if i not in seeds
        ]
        return _digest("arguments", _bare(node), inputs)

    def called(self, node: NodeDef) -> list[str]:
        """Return the functions that a node calls."""
        names = [node.op, *(ref.name for ref in node_defs.function_refs(node))]
        return [name for name in names if name in self.library]

    def calls_python(self, node: NodeDef) -> bool:
        """Return whether a node or a function that it calls is Python."""
        return self._calls(node, "python", lambda it: it.op in PYTHON_OPS)

    def is_random(self, node: NodeDef) -> bool:
        """Return whether a node or a function that it calls may draw random numbers."""
        return self._calls(node, "random", _is_random)

    def _calls(self, node: NodeDef, kind: str, is_kind: Callable[[NodeDef], bool]) -> bool:
        return is_kind(node) or any(self._has_kind(f, kind, is_kind) for f in self.called(node))

    def _has_kind(self, name: str, kind: str, is_kind: Callable[[NodeDef], bool]) -> bool:
        if (name, kind) not in self._has:
            self._has[name, kind] = False  # ends recursion
            nodes = self.library[name].node_def
            self._has[name, kind] = any(self._calls(node, kind, is_kind) for node in nodes)
        return self._has[name, kind]

    def _function(self, name: str) -> bytes:
        if name not in self._digests:
            self._digests[name] = b""  # ends recursion
            function = self.library[name]
            nodes = [
                (_bare(it), it.name, list(it.input), [self._function(f) for f in self.called(it)])
                for it in function.node_def
            ]
            self._digests[name] = _digest(nodes, sorted(function.ret.items()))
        return self._digests[name]

    def _value(self, nodes: dict[str, NodeDef], name: str) -> bytes:
        node = nodes.get(node_defs.source_of(name))
        if node is None or _is_dataset(node):
            return name.encode() if node is None else b"dataset"
        parts = []
        for below in node_defs.ancestors(nodes, node):
            is_resource = below.op == "Const" and below.attr["dtype"].type == _RESOURCE
            parts.append("resource" if is_resource else (_bare(below), len(below.input)))
        return _digest(parts)


class _Search:
    """Collects the shared nodes of a graph and of the functions that it calls."""

    def __init__(self, ops: _Ops, others: Callable[[], Sequence[Definitions]]) -> None:
        self._ops, self._others = ops, others
        self.shared: dict[str, set[str]] = {}
        self._visited: set[tuple[str, bool]] = set()

    def visit(self, scope: str, scope_nodes: Any, *, everything: bool) -> None:
        """Add the shared nodes of a graph or of a function.

        Args:
          scope: name of the function; "": the graph.
          scope_nodes: its nodes.
          everything: whether all of its nodes are shared.
        """
        if (scope, everything) in self._visited or (scope, True) in self._visited:
            return
        self._visited.add((scope, everything))
        nodes = node_defs.by_name(scope_nodes)
        mine = self.shared.setdefault(scope, set())
        mine |= set(nodes) if everything else self._before_selections(nodes)
        if not scope:
            mine |= self._common(nodes, mine)
        for node in scope_nodes:
            for name in self._ops.called(node):
                function = self._ops.library[name]
                whole = node.name in mine or self._selects_with(nodes, node, function)
                self.visit(name, function.node_def, everything=whole)

    def _before_selections(self, nodes: dict[str, NodeDef]) -> set[str]:
        found: set[str] = set()
        for node in nodes.values():
            if self._selects(nodes, node):
                found |= {below.name for below in node_defs.ancestors(nodes, node)} - {node.name}
        return found

    def _common(self, nodes: dict[str, NodeDef], known: set[str]) -> set[str]:
        """Return the shuffles whose input is equal in all splits, if a later op may drop rows."""
        found: set[str] = set()
        for node in nodes.values():
            if _may_drop(nodes, node):
                below = node_defs.ancestors(nodes, node)[:-1]
                found |= {it.name for it in below if "Shuffle" in it.op} - known
        return {name for name in found if not self._is_of_split(nodes, nodes[name])}

    def _is_of_split(self, nodes: dict[str, NodeDef], node: NodeDef) -> bool:
        """Return whether the input of a shuffle is known to differ between splits."""
        return any(
            below.op == "ShardDataset"
            or (_is_dataset(below) and self._varies(nodes, below, python=False))
            for below in node_defs.ancestors(nodes, node)[:-1]
        )

    def _selects(self, nodes: dict[str, NodeDef], node: NodeDef) -> bool:
        if node.op == "ShardDataset":
            return True
        if not _may_drop(nodes, node) or not self._has_random(nodes, node):
            return False
        return self._varies(nodes, node) or self._gets_number(nodes, node)

    def _selects_with(
        self, nodes: dict[str, NodeDef], node: NodeDef, function: FunctionDef
    ) -> bool:
        """Return whether a function gets the number of the split, or selects single elements."""
        if not self._selects(nodes, node):
            return False
        returns_dataset = any(it.type == _VARIANT for it in function.signature.output_arg)
        arguments = self._ops.arguments(nodes, node)
        same = all(arguments in other for other in self._others())
        return not (returns_dataset and same) or self._gets_number(nodes, node)

    def _gets_number(self, nodes: dict[str, NodeDef], node: NodeDef) -> bool:
        """Return whether a map before a node may add the number of the split to the elements."""
        below = node_defs.ancestors(nodes, node)[:-1]
        maps = (it for it in below if it.op in KEEPS and self._ops.called(it))
        return any(self._varies(nodes, it) for it in maps)

    def _varies(self, nodes: dict[str, NodeDef], node: NodeDef, python: bool = True) -> bool:
        """Return whether an op differs between splits.

        Args:
          nodes: the nodes of the graph or of the function.
          node: the op.
          python: the result if it calls Python.
        """
        if self._ops.calls_python(node):
            return python
        definition = self._ops.definition(nodes, node)
        return any(definition not in other for other in self._others())

    def _has_random(self, nodes: dict[str, NodeDef], node: NodeDef) -> bool:
        return any(map(self._ops.is_random, node_defs.ancestors(nodes, node)))


def _may_drop(nodes: dict[str, NodeDef], node: NodeDef) -> bool:
    """Return whether a node has a dataset as its input and may drop elements of it."""
    if node.op in KEEPS or not _is_dataset(node):
        return False
    inputs = [nodes.get(node_defs.source_of(name)) for name in node_defs.data_inputs(node)]
    return any(below is None or _is_dataset(below) for below in inputs)


@functools.lru_cache(maxsize=1024)
def _returns_variant(op: str) -> bool:
    definition = node_defs.op_def(op)
    return definition is not None and any(it.type == _VARIANT for it in definition.output_arg)


def _is_dataset(node: NodeDef) -> bool:
    types = node.attr["Tout"].list.type if "Tout" in node.attr else ()
    return _returns_variant(node.op) or _VARIANT in types


def _is_random(node: NodeDef) -> bool:
    has_seeds = has_seed_attrs(node.op) or seed_inputs(node.op) is not None
    return has_seeds or node.op.startswith(("Stateful", "Rng")) or node.op == "ReadVariableOp"


def _bare(node: NodeDef) -> bytes:
    """Return the op and the attributes of a node, without seeds and the names of functions."""
    out = type(node)(op=node.op, device=node.device)
    for key, value in node.attr.items():
        if key not in _NOT_DEFINING:
            out.attr[key].CopyFrom(value)
    for ref in node_defs.function_refs(out):
        ref.name = ""
    return node_defs.to_bytes(out)


def _digest(*parts: object) -> bytes:
    return hashlib.blake2b(repr(parts).encode(), digest_size=16).digest()


def _add_aligned(graph_def: GraphDef, shared: dict[str, set[str]]) -> None:
    """Add the random ops of the graph that must have the same numbers as a shared one.

    They are the same object, or have equal seeds in two branches of the graph, such as images and
    labels that are zipped. If a shared op with equal seeds comes before an op, its seeds are used
    in two steps of one branch, and the second may differ.
    """
    nodes = node_defs.by_name(graph_def.node)
    draws = [node for node in graph_def.node if seed_inputs(node.op) is not None]
    before = {it.name: {one.name for one in node_defs.ancestors(nodes, it)} for it in draws}
    known = shared.setdefault("", set())
    first = [node for node in draws if node.name in known]
    for node in draws:
        equal = [
            it for it in first if it.op == node.op and _seeds(nodes, it) == _seeds(nodes, node)
        ]
        is_second = any(it.name in before[node.name] for it in equal)
        is_same = any(_places(nodes, it) & _places(nodes, node) for it in first)
        if is_same or (equal and not is_second):
            known.add(node.name)


def _seeds(nodes: dict[str, NodeDef], node: NodeDef) -> tuple[Any, Any] | str:
    seeds = input_seeds(nodes, node)
    return node.name if seeds == (0, 0) or None in seeds else seeds


def _places(nodes: dict[str, NodeDef], node: NodeDef) -> set[object]:
    """Return the names of the dataset object and of the seed generators of an op."""
    return set(_names(nodes, node))


def _names(nodes: dict[str, NodeDef], node: NodeDef) -> Iterator[object]:
    if "metadata" in node.attr and node.attr["metadata"].s:
        yield node.attr["metadata"].s
    for name in node.input:
        below = nodes.get(node_defs.source_of(name))
        if below is not None and below.op == "Const":
            yield from (it.name for it in below.attr["value"].tensor.resource_handle_val)
