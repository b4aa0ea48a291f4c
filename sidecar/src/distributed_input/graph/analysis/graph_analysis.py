"""Properties of a dataset that its graph shows without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.graph.analysis.batches import (
    ElementBatches,
    drops_remainder,
    find_batches,
    is_batch,
    padding_values,
)
from distributed_input.graph.definition import caches, node_defs, pushdown
from distributed_input.graph.definition.datasets import (
    BATCHES,
    FILTERS,
    FLATTENS,
    MAPS,
    PASSES,
    READERS,
    SLICES,
    Scope,
    kind,
    main_scope,
)
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef, NodeDef

_IN_MEMORY = ("RangeDataset", "TensorSliceDataset")
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
_READS_FILES = frozenset(["ReadFile", "WholeFileReaderV2", "ReaderReadV2"])


@dataclass(frozen=True)
class GraphAnalysis:
    """The properties of a dataset that matter for running it as splits.

    Attributes:
      batches: what is known of the batches in the dataset.
      paddings: values that fill up each component of a padded batch; (): unknown, or not padded.
      drop_remainder: a batch op drops an incomplete batch at the end of every split.
      shards_source: all shard ops are pushed to their sources: the elements of other splits cost
        nothing.
      record_shard: name of a shard op that keeps some of the records that were read or computed
        before it, so that every split reads or computes all of them; "" if there is none.
      file_shards: names of the shard ops that select the names of files, which are read later.
      python_ops: Python functions in the graph, which cannot run in another process.
      infinite: the dataset never ends; None if the graph does not show it.
      useless_cache: a cache in memory is read only once.
    """

    batches: ElementBatches
    paddings: tuple[Any, ...]
    drop_remainder: bool
    shards_source: bool
    record_shard: str
    file_shards: tuple[str, ...]
    python_ops: tuple[str, ...]
    infinite: bool | None
    useless_cache: bool


def analyze(graph_def: GraphDef) -> GraphAnalysis:
    """Analyze a graph, canonical or not."""
    main = main_scope(graph_def)
    shards = list(_shards(main))
    return GraphAnalysis(
        batches=find_batches(main),
        paddings=padding_values(main),
        drop_remainder=any(
            is_batch(one) and drops_remainder(main, one) is not False for one in main.chain()
        ),
        shards_source=bool(shards) and all(one.is_pushed for one in shards),
        record_shard=_record_shard(main, shards),
        file_shards=tuple(
            str(one.node.name)
            for one in shards
            if _reads_files(main, one.after) and not _reads_files(main, one.before)
        ),
        python_ops=_python_ops(graph_def),
        infinite=_is_endless(main, main.output, {}),
        useless_cache=caches.has_useless_cache(graph_def),
    )


@dataclass(frozen=True)
class _Shard:
    """A shard op of a graph, and the nodes before and behind it."""

    node: NodeDef
    source: NodeDef
    is_pushed: bool
    before: list[NodeDef]
    after: list[NodeDef]


def _shards(main: Scope) -> Iterator[_Shard]:
    for node in main.nodes.values():
        source = main.input(node)
        if node.op == "ShardDataset" and source is not None:
            before = node_defs.ancestors(main.nodes, source)
            names = {below.name for below in before}
            after = [other for other in main.nodes.values() if other.name not in names]
            yield _Shard(node, source, pushdown.can_push(main, node), before, after)


def _record_shard(main: Scope, shards: list[_Shard]) -> str:
    """Return the shard op that selects records; "" if there is none.

    If files are read after a shard, it selects their names. Elements in memory that no function
    has computed cost less than a function after the shard.
    """
    for one in shards:
        is_cheap = one.is_pushed or one.source.op in _IN_MEMORY
        if is_cheap or _reads_files(main, one.after):
            continue
        costs = _reads_files(main, one.before) or _calls_function(one.before)
        if costs or not _calls_function(one.after):
            return str(one.node.name)
    return ""


def _reads_files(main: Scope, nodes: list[NodeDef]) -> bool:
    ops = (node.op for node in main.with_called(nodes))
    return any(kind(op) in READERS or op in _READS_FILES for op in ops)


def _python_ops(graph_def: GraphDef) -> tuple[str, ...]:
    """Return the Python functions, each as "op in the function that calls it"."""
    found = [
        f"{node.op} in {node_defs.readable_name(scope)}" if scope else str(node.op)
        for scope, nodes in node_defs.scopes(graph_def).items()
        for node in nodes
        if node.op in PYTHON_OPS
    ]
    return tuple(dict.fromkeys(found))


def _calls_function(nodes: list[NodeDef]) -> bool:
    return any(any(node_defs.function_refs(node)) for node in nodes)


_Known = dict[str, bool | None]
"""Whether the arguments of a function never end, for those that are datasets."""


def _is_endless(scope: Scope, node: NodeDef | None, known: _Known) -> bool | None:
    """Return whether a dataset never ends; None if the graph does not show it."""
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
    return known[name] if name in known else _is_endless(scope, scope.nodes.get(name), known)


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
