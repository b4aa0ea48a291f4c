"""Properties of a dataset that its graph shows without running it."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distributed_input.tfdata.analysis.batches import (
    ElementBatches,
    drops_remainder,
    find_batches,
    is_batch,
    padding_values,
)
from distributed_input.tfdata.analysis.endless import is_endless
from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.datasets import READERS, Scope, kind, main_scope
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef, NodeDef

_SKIPPING = ("RangeDataset", "TensorSliceDataset")
_READS_FILES = frozenset(["ReadFile", "WholeFileReaderV2", "ReaderReadV2"])


@dataclass(frozen=True)
class GraphAnalysis:
    """The properties of a dataset that matter for running it as splits.

    Attributes:
      batches: what is known of the batches in the dataset.
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
        shards_source=bool(shards) and all(one.source.op in _SKIPPING for one in shards),
        record_shard=_record_shard(main, shards),
        file_shards=tuple(
            str(one.node.name)
            for one in shards
            if _reads_files(main, one.after) and not _reads_files(main, one.before)
        ),
        python_ops=_python_ops(graph_def),
        infinite=is_endless(main),
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


def _record_shard(main: Scope, shards: list[_Shard]) -> str:
    """Return the shard op that selects records; "" if there is none.

    If files are read after a shard, it selects their names. Elements in memory that no function
    has computed cost less than a function after the shard.
    """
    for one in shards:
        if one.source.op in _SKIPPING or _reads_files(main, one.after):
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
