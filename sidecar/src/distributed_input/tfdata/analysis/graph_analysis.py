"""Properties of a dataset that its graph shows without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distributed_input.tfdata.analysis import padding
from distributed_input.tfdata.analysis.batches import (
    drops_remainder,
    find_batches,
    is_batch,
)
from distributed_input.tfdata.analysis.endless import is_endless
from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.dataset_ops import READERS, kind
from distributed_input.tfdata.graph.function_names import readable_name
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef, NodeDef
from distributed_input.tfdata.graph.scopes import GraphFunctions, Scope, main_scope

_SKIPPING = ("RangeDataset", "TensorSliceDataset")
_READS_FILES = frozenset(["ReadFile", "WholeFileReaderV2", "ReaderReadV2"])


@dataclass(frozen=True)
class GraphAnalysis:
    """The properties of a dataset that matter for running it as splits.

    Attributes:
      batch_size: rows in a batch; None if it is unknown.
      batched: the elements are known to be batches.
      repeats_batches: the op that repeats batches, whose passes may end with smaller ones; or "".
      hidden_batch: the op behind which elements do not count as batches, or "".
      paddings: values that fill up each component of a padded batch; (): unknown, or not padded.
      drop_remainder: a batch op drops an incomplete batch at the end of every split.
      shards_source: the shard op skips the elements of other splits at no cost.
      record_shard: name of the shard op that keeps some of the records that were read or computed
        before it, so that every split reads or computes all of them; "" if there is none.
      file_shards: names of the shard ops that select the names of files, which are read later.
      python_ops: Python functions in the graph, which cannot run in another process.
      infinite: the dataset never ends; None if the graph does not show it.
      useless_cache: a cache in memory is read only once.
    """

    batch_size: int | None
    batched: bool
    repeats_batches: str
    hidden_batch: str
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
    functions, main = GraphFunctions(graph_def), main_scope(graph_def)
    shards = list(_shards(main))
    found = find_batches(graph_def)
    return GraphAnalysis(
        batch_size=found.size,
        batched=found.batched,
        repeats_batches=found.repeated,
        hidden_batch=found.hidden_by,
        paddings=padding.values(graph_def),
        drop_remainder=any(
            is_batch(one) and drops_remainder(main, one) is not False for one in main.chain()
        ),
        shards_source=_shards_source(shards),
        record_shard=_record_shard(functions, shards),
        file_shards=_file_shards(functions, shards),
        python_ops=_python_ops(graph_def),
        infinite=is_endless(graph_def),
        useless_cache=caches.has_useless_cache(graph_def),
    )


@dataclass(frozen=True)
class _Shard:
    """A shard op of a graph, and the nodes before and behind it."""

    node: NodeDef
    source: NodeDef
    before: list[NodeDef]
    after: list[NodeDef]


def _shards(main: Scope) -> Iterator[_Shard]:
    for node in main.nodes.values():
        source = main.input(node)
        if node.op == "ShardDataset" and source is not None:
            before = node_defs.ancestors(main.nodes, source)
            names = {below.name for below in before}
            after = [other for other in main.nodes.values() if other.name not in names]
            yield _Shard(node, source, before, after)


def _shards_source(shards: list[_Shard]) -> bool:
    """Return whether all shard ops, at least one, read a source that skips elements."""
    return bool(shards) and all(one.source.op in _SKIPPING for one in shards)


def _record_shard(functions: GraphFunctions, shards: list[_Shard]) -> str:
    """Return the shard op that selects records; "" if there is none.

    If files are read after a shard, it selects their names. Elements in memory that no function
    has computed cost less than a function after the shard.
    """
    for one in shards:
        if one.source.op in _SKIPPING or _reads_files(functions, one.after):
            continue
        costs = _reads_files(functions, one.before) or _calls_function(one.before)
        if costs or not _calls_function(one.after):
            return str(one.node.name)
    return ""


def _file_shards(functions: GraphFunctions, shards: list[_Shard]) -> tuple[str, ...]:
    """Return the shard ops that select the names of files, which are read later."""
    return tuple(
        str(one.node.name)
        for one in shards
        if _reads_files(functions, one.after) and not _reads_files(functions, one.before)
    )


def _reads_files(functions: GraphFunctions, nodes: list[NodeDef]) -> bool:
    ops = (node.op for node in functions.nodes(nodes))
    return any(kind(op) in READERS or op in _READS_FILES for op in ops)


def _python_ops(graph_def: GraphDef) -> tuple[str, ...]:
    """Return the Python functions, each as "op in the function that calls it"."""
    found = [
        f"{node.op} in {readable_name(scope)}" if scope else str(node.op)
        for scope, nodes in node_defs.scopes(graph_def).items()
        for node in nodes
        if node.op in PYTHON_OPS
    ]
    return tuple(dict.fromkeys(found))


def _calls_function(nodes: list[NodeDef]) -> bool:
    return any(any(node_defs.function_refs(node)) for node in nodes)
