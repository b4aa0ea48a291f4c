"""Which random ops belong to one split: those known to follow the selection of its rows.

Splits must agree on the order of what they select from. Otherwise `shuffle` before `shard` would
repeat some rows and drop others. So all splits share the seeds of an op, unless it is known that
nothing behind it selects the rows of the split.

What follows a selection that `selecting` knows has rows of this split alone. Other ways to select,
such as a filter, are not looked for: their shuffles are alike in all splits, and `warning` says so.

Random values in functions of maps do not change the order. They belong to the split also if no
shard comes before them, if nothing behind them may drop rows.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import tensorflow as tf

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.datasets import BATCHES, FLATTENS, MAPS, REORDERS, kind
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef
from distributed_input.graph.definition.random_ops import (
    has_seed_attrs,
    input_seeds,
    objects_of,
    seed_inputs,
)
from distributed_input.graph.random.selecting import selecting_ops

_MAPS = MAPS | {"MapAndBatch"}
_KEEPS = _MAPS | set(BATCHES) | REORDERS
_KEEPS |= {"Unbatch", "AssertCardinality", "Concatenate", "ParseExample"}
"""Ops that return all elements of their inputs."""
_ZIP, _CHOICE = "ZipDataset", "DirectedInterleaveDataset"
_VARIANT = tf.variant.as_datatype_enum


class OwnOps(NamedTuple):
    """The ops whose seeds depend on the split.

    `nodes` has their names in the graph (key "") and in functions. `functions` are those whose
    random values they are.
    """

    nodes: dict[str, frozenset[str]]
    functions: frozenset[str]


def find(graph_def: GraphDef, num_splits: int, split: int, certain: Sequence[bool]) -> OwnOps:
    """Return the ops of a split's graph whose seeds depend on the split.

    `certain` is the result of `selecting.shards_by_split`.
    """
    search = _Search(graph_def, selecting_ops(graph_def, num_splits, split, certain))
    search.dataset_scope("", graph_def.node, node_defs.retval(graph_def).input[0], {})
    own = {scope: frozenset(names) for scope, names in search.own.items() if names}
    own[""] = own.get("", frozenset()) - aligned(graph_def, own.get("", frozenset()))
    return OwnOps(own, frozenset(name for name, is_own in search.values.items() if is_own))


def has_random_order(graph_def: GraphDef) -> bool:
    """Return whether random ops may define which rows a split has, or their order."""
    random = node_defs.functions_with(node_defs.library(graph_def), lambda _, node: _draws(node.op))
    return any(
        seed_inputs(node.op) is not None
        or (
            not _keeps(node)
            and node_defs.is_dataset(node)
            and (_draws(node.op) or not random.isdisjoint(node_defs.called(node)))
        )
        for node in node_defs.all_nodes(graph_def)
    )


def warning(graphs: Mapping[int, GraphDef], certain: Sequence[bool]) -> str:
    """Return a warning if a shuffle of a function's dataset is the same in all splits, or ""."""
    alike, *others = map(_shuffle_seeds, graphs.values())
    if any(certain) or not any(all(one in other for other in others) for one in alike):
        return ""
    return (
        "shuffle has the same order in all splits, because it is not known which op selects the"
        " rows of a split. Select them with dataset.shard(context.num_input_pipelines,"
        " context.input_pipeline_id), for example from the list of files: what follows it is"
        " shuffled in each split on its own"
    )


def _shuffle_seeds(graph_def: GraphDef) -> list[object]:
    nodes = node_defs.by_name(graph_def.node)
    shuffles = [node for node in graph_def.node if node.op.startswith("Shuffle")]
    return [input_seeds(nodes, one) if seed_inputs(one.op) else None for one in shuffles]


@dataclass(frozen=True)
class _Argument:
    """An argument of a function.

    `is_own`: it has, or depends on, rows of this split alone.
    """

    is_dataset: bool
    is_own: bool


@dataclass
class _SeededScope:
    """A graph, or a function that returns a dataset.

    Nothing behind a function that `is_kept` may drop elements. `selected`: the datasets that have
    rows of this split alone, as far as that is known. `users`: the nodes that have a dataset as
    their input.
    """

    name: str
    nodes: dict[str, NodeDef]
    arguments: dict[str, _Argument]
    is_kept: bool
    selected: dict[str, bool] = field(default_factory=dict)
    users: dict[str, list[NodeDef]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        for node in self.nodes.values():
            for below in self.datasets(node):
                self.users.setdefault(below, []).append(node)

    def keeps(self, node: NodeDef) -> bool:
        """Return whether nothing behind a node may drop its elements."""
        users = self.users.get(node.name, [])
        return self.is_kept and all(_keeps(user) and self.keeps(user) for user in users)

    def datasets(self, node: NodeDef) -> list[str]:
        """Return the inputs of a node that are datasets."""
        names = map(node_defs.source_of, node_defs.data_inputs(node))
        return [name for name in names if self.is_dataset(name)]

    def is_dataset(self, name: str) -> bool:
        if name in self.arguments:
            return self.arguments[name].is_dataset
        return name in self.nodes and node_defs.is_dataset(self.nodes[name])

    def depends_on_rows(self, name: str) -> bool:
        """Return whether a value depends on an argument with rows of this split."""
        if name in self.arguments:
            return self.arguments[name].is_own
        node = self.nodes.get(name)
        below = [] if node is None else node_defs.ancestors(self.nodes, node)
        names = {node_defs.source_of(each) for one in below for each in one.input}
        return any(self.arguments[each].is_own for each in names & set(self.arguments))


class _Search:
    """Collects the ops that belong to one split, in the graph and in its functions."""

    def __init__(self, graph_def: GraphDef, selecting: set[tuple[str, str]]) -> None:
        self._library = node_defs.library(graph_def)
        self._reordering = node_defs.functions_with(
            self._library, lambda _, node: node.op == "RandomShuffle" or "Dataset" in node.op
        )
        self._selecting = selecting
        self._active: set[str] = set()
        self.own: dict[str, set[str]] = {}
        self.values: dict[str, bool] = {}

    def dataset_scope(
        self,
        name: str,
        scope_nodes: Any,
        result: str,
        arguments: dict[str, _Argument],
        *,
        is_kept: bool = True,
    ) -> bool:
        """Add the ops of a graph or of a function. Return whether its result has own rows only."""
        if name in self._active:
            return False
        self._active.add(name)
        scope = _SeededScope(name, node_defs.by_name(scope_nodes), arguments, is_kept)
        is_selected = self._is_selected(scope, node_defs.source_of(result))
        own = {node.name for node in scope_nodes if self._is_own(scope, node)}
        if is_selected and any(argument.is_own for argument in arguments.values()):
            own |= {node.name for node in scope_nodes if not node_defs.is_dataset(node)}
        self._add(name, own)
        for node in scope_nodes:
            for function in self._called(node):
                makes_rows = node_defs.is_dataset(node) and _returns_dataset(function)
                if kind(node.op) in _MAPS or not makes_rows:
                    keeps_order = function.signature.name not in self._reordering
                    is_map = kind(node.op) in _MAPS and scope.keeps(node) and keeps_order
                    self._value_function(function, is_own=node.name in own or is_map)
        self._active.discard(name)
        return is_selected

    def _is_selected(self, scope: _SeededScope, name: str) -> bool:
        """Return whether a dataset has rows of this split alone."""
        if name in scope.arguments:
            return scope.arguments[name].is_dataset and scope.arguments[name].is_own
        if name not in scope.nodes:
            return False
        if name not in scope.selected:
            scope.selected[name] = False
            scope.selected[name] = self._compute_selected(scope, scope.nodes[name])
        return scope.selected[name]

    def _compute_selected(self, scope: _SeededScope, node: NodeDef) -> bool:
        if (scope.name, node.name) in self._selecting:
            return True
        inputs = scope.datasets(node)
        below = [self._is_selected(scope, name) for name in inputs]
        inner = [
            self._inner(scope, node, function, bool(below) and all(below))
            for function in self._called(node)
            if _returns_dataset(function) and kind(node.op) not in _MAPS
        ]
        if kind(node.op) in FLATTENS or (inner and not inputs) or "PartitionedCall" in node.op:
            return bool(inner) and all(inner)
        if not inputs:  # a source
            return any(
                scope.depends_on_rows(node_defs.source_of(name))
                for name in node_defs.data_inputs(node)
            )
        if node.op == _ZIP:
            return any(below)
        if node.op == _CHOICE:
            return all(below[1:])
        return all(below)

    def _inner(
        self, scope: _SeededScope, node: NodeDef, function: FunctionDef, is_behind: bool
    ) -> bool:
        """Visit a function that creates a dataset for each element, or that is called once."""
        signature = function.signature
        types = [argument.type == _VARIANT for argument in signature.input_arg]
        names = [node_defs.source_of(name) for name in node_defs.data_inputs(node)]
        if "PartitionedCall" in node.op or node.op in self._library:
            given = [self._given(scope, name) for name in names]
        elif kind(node.op) in FLATTENS:
            captured = names[1:][: len(node.attr["Targuments"].list.type)]
            elements = [is_behind] * (len(types) - len(captured))
            given = elements + [self._given(scope, name) for name in captured]
        else:  # for example the windows of group_by_window
            given = [is_behind and is_dataset for is_dataset in types]
        arguments = {
            argument.name: _Argument(is_dataset, is_own)
            for argument, is_dataset, is_own in zip(signature.input_arg, types, given, strict=False)
        }
        result = function.ret[signature.output_arg[0].name]
        is_kept = scope.keeps(node)
        return self.dataset_scope(
            signature.name, function.node_def, result, arguments, is_kept=is_kept
        )

    def _given(self, scope: _SeededScope, name: str) -> bool:
        if scope.is_dataset(name):
            return self._is_selected(scope, name)
        return scope.depends_on_rows(name)

    def _is_own(self, scope: _SeededScope, node: NodeDef) -> bool:
        if not node_defs.is_dataset(node):
            return False
        inputs = scope.datasets(node)
        if inputs and all(self._is_selected(scope, name) for name in inputs):
            return True
        return self._is_choice(scope, node)

    def _is_choice(self, scope: _SeededScope, node: NodeDef) -> bool:
        """Return whether a dataset only chooses among own rows, or is zipped with them."""
        found = scope.users.get(node.name, [])
        return bool(found) and all(self._chooses(scope, node, user) for user in found)

    def _chooses(self, scope: _SeededScope, node: NodeDef, user: NodeDef) -> bool:
        inputs = scope.datasets(user)
        if user.op == _ZIP:
            return self._is_selected(scope, user.name) or self._is_choice(scope, user)
        if user.op == _CHOICE:
            is_selector = inputs[0] == node.name and node.name not in inputs[1:]
            return is_selector and self._is_selected(scope, user.name)
        if (scope.name, user.name) in self._selecting or self._is_selected(scope, user.name):
            return False
        return len(inputs) == 1 and self._is_choice(scope, user)

    def _value_function(self, function: FunctionDef, *, is_own: bool) -> None:
        """Add all ops of a function and of those that it calls."""
        name = function.signature.name
        if self.values.get(name) is (self.values.get(name, True) and is_own):
            return
        self.values[name] = self.values.get(name, True) and is_own
        self._add(name, {node.name for node in function.node_def} if is_own else set())
        for node in function.node_def:
            for below in self._called(node):
                self._value_function(below, is_own=is_own)

    def _add(self, name: str, own: set[str]) -> None:
        """Record the own ops of a scope. Those that any of its callers shares are shared."""
        self.own[name] = self.own[name] & own if name in self.own else set(own)

    def _called(self, node: NodeDef) -> list[FunctionDef]:
        return [self._library[name] for name in node_defs.called(node) if name in self._library]


def _returns_dataset(function: FunctionDef) -> bool:
    found = function.signature.output_arg
    return bool(found) and found[0].type == _VARIANT


def _keeps(node: NodeDef) -> bool:
    """Return whether an op returns all elements of its inputs."""
    return kind(node.op) in _KEEPS or node.op in ("Identity", "_Retval")


def _draws(op: str) -> bool:
    """Return whether an op may draw random numbers."""
    has_seeds = has_seed_attrs(op) or seed_inputs(op) is not None
    return has_seeds or op.startswith(("StatefulUniform", "StatefulStandard", "Rng"))


def aligned(graph_def: GraphDef, own: frozenset[str]) -> set[str]:
    """Return the random ops of the graph that must have the same numbers as a shared one.

    They are the same object, or have equal seeds in two branches of the graph, such as images and
    labels that are zipped. If a shared op with equal seeds comes before an op, its seeds are used
    in two steps of one branch, and the second may differ.
    """
    nodes = node_defs.by_name(graph_def.node)
    draws = [node for node in graph_def.node if seed_inputs(node.op) is not None]
    before = {it.name: {one.name for one in node_defs.ancestors(nodes, it)} for it in draws}
    shared = [node for node in draws if node.name not in own]
    found: set[str] = set()
    for node in draws:
        equal = [
            it for it in shared if it.op == node.op and _seeds(nodes, it) == _seeds(nodes, node)
        ]
        is_second = any(it.name in before[node.name] for it in equal)
        objects = set(objects_of(nodes, node))
        is_same = any(not objects.isdisjoint(objects_of(nodes, it)) for it in shared)
        if is_same or (equal and not is_second):
            found.add(node.name)
    return found


def _seeds(nodes: dict[str, NodeDef], node: NodeDef) -> tuple[Any, Any] | str:
    seeds = input_seeds(nodes, node)
    return node.name if seeds == (0, 0) or None in seeds else seeds
