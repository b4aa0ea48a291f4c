"""Whether a dataset ends, as far as its graph shows that."""

from __future__ import annotations

import tensorflow as tf

from distributed_input.tfdata.graph import node_defs
from distributed_input.tfdata.graph.datasets import (
    BATCHES,
    FILTERS,
    FLATTENS,
    MAPS,
    PASSES,
    READERS,
    SLICES,
    Scope,
    kind,
)
from distributed_input.tfdata.graph.node_defs import NodeDef

# The result ends if and only if the input does.
_SAME = (
    PASSES
    | MAPS
    | FILTERS
    | set(BATCHES)
    | set("Cache Snapshot Shuffle Skip Shard Unbatch IgnoreErrors ParseExample Window SlidingWindow"
          " Scan DenseToSparseBatch GroupByWindow Unique".split())
)  # fmt: skip
_SOURCES = READERS | SLICES
_COUNT = {"Repeat": 1, "ShuffleAndRepeat": 4}
_NEVER = 2**62
"""`enumerate` zips with a range whose end is the largest integer: it never ends by itself."""


_Known = dict[str, bool | None]
"""Whether the arguments of a function never end, for those that are datasets."""


def is_endless(main: Scope) -> bool | None:
    """Return whether a dataset never ends; None if the graph does not show it."""
    return _of(main, main.output, {})


def _of(scope: Scope, node: NodeDef | None, known: _Known) -> bool | None:
    if node is None:
        return None
    one = kind(node.op)
    if one in _SOURCES:
        return False
    if one == "Random":
        return True
    if one == "Range":
        stop = scope.value(node, 1)
        return stop is not None and bool(stop >= _NEVER)
    if one == "AssertCardinality":
        count = scope.value(node, 1)
        if count is not None and count != tf.data.UNKNOWN_CARDINALITY:
            return bool(count == tf.data.INFINITE_CARDINALITY)
    names = map(node_defs.source_of, node_defs.data_inputs(node))
    inputs = [
        _input(scope, name, known)
        for name in names
        if name in known or _is_dataset(scope.nodes.get(name))
    ]
    if one in FLATTENS and inputs:
        return _or([inputs[0], _made_by(scope, node, known)])
    return _combined(scope, node, inputs) if inputs else None


def _input(scope: Scope, name: str, known: _Known) -> bool | None:
    return known[name] if name in known else _of(scope, scope.nodes.get(name), known)


def _made_by(scope: Scope, node: NodeDef, known: _Known) -> bool | None:
    """Return whether the datasets that a function returns never end."""
    function = scope.inner(node)
    if function is None:
        return None
    count = len(node.attr["Targuments"].list.type)
    captured = [node_defs.source_of(name) for name in node_defs.data_inputs(node)[1:][:count]]
    first = len(function.arguments) - count
    # An element that is a dataset is a window, which ends.
    inner: _Known = dict.fromkeys(function.arguments[:first], False)
    for argument, name in zip(function.arguments[first:], captured, strict=True):
        inner[argument] = _input(scope, name, known)
    return _input(function, function.result, inner)


def _is_dataset(node: NodeDef | None) -> bool:
    return node is not None and ("Dataset" in node.op or node.op == "Identity")


def _combined(scope: Scope, node: NodeDef, inputs: list[bool | None]) -> bool | None:
    """Return whether the result of an op never ends, by its inputs."""
    one = kind(node.op)
    if one in _COUNT:
        count = scope.value(node, _COUNT[one])
        return None if count is None else bool(count < 0) or inputs[0]
    if one == "Take":
        count = scope.value(node, 1)
        if count is not None:
            return inputs[0] if count < 0 else False
    if one in ("Take", "TakeWhile"):
        return _and([inputs[0], None])
    if one == "Zip":
        return _and(inputs)
    if one == "Concatenate":
        return _or(inputs)
    if one == "DirectedInterleave":  # a selector, and what it selects from
        first, *others = inputs
        if node.attr["stop_on_empty_dataset"].b and len(set(others)) > 1:
            return _and([first, None])  # it may never select the one that ends
        return _and([first, _or(others)])
    return inputs[0] if one in _SAME or node.op == "Identity" else None


def _and(values: list[bool | None]) -> bool | None:
    """Return whether all are true, in three-valued logic."""
    if False in values:
        return False
    return None if None in values else True


def _or(values: list[bool | None]) -> bool | None:
    if True in values:
        return True
    return None if None in values else False
