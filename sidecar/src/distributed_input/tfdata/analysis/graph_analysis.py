"""Properties of a dataset that its graph shows without running it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from distributed_input.tfdata.analysis import padding
from distributed_input.tfdata.analysis.batches import (
    READERS,
    drops_remainder,
    find_batches,
    is_batch,
)
from distributed_input.tfdata.analysis.endless import is_endless
from distributed_input.tfdata.analysis.scopes import GraphFunctions, Scope, kind, main_scope
from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.function_names import readable_name
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef, NodeDef

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
    walk, main = _Walk(graph_def), main_scope(graph_def)
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
        shards_source=walk.shards_source(main),
        record_shard=walk.record_shard(main),
        file_shards=walk.file_shards(main),
        python_ops=walk.python_ops(main),
        infinite=is_endless(graph_def),
        useless_cache=caches.has_useless_cache(graph_def),
    )


class _Walk:
    """Looks at a graph and its functions."""

    def __init__(self, graph_def: GraphDef) -> None:
        self._functions = GraphFunctions(graph_def)

    def shards_source(self, main: Scope) -> bool:
        """Return whether all shard ops, at least one, read a source that skips elements."""
        shards = [node for node in main.nodes.values() if node.op == "ShardDataset"]
        sources = [main.input(node) for node in shards]
        return bool(shards) and all(one is not None and one.op in _SKIPPING for one in sources)

    def record_shard(self, main: Scope) -> str:
        """Return the shard op that selects records; "" if there is none.

        If files are read after a shard, it selects their names. Elements in memory that no function
        has computed cost less than a function after the shard.
        """
        for node in main.nodes.values():
            source = main.input(node)
            if node.op != "ShardDataset" or source is None or source.op in _SKIPPING:
                continue
            before = node_defs.ancestors(main.nodes, source)
            names = {below.name for below in before}
            after = [other for other in main.nodes.values() if other.name not in names]
            if self._reads_files(after):
                continue
            costs = self._reads_files(before) or _calls_function(before)
            if costs or not _calls_function(after):
                return str(node.name)
        return ""

    def file_shards(self, main: Scope) -> tuple[str, ...]:
        """Return the shard ops that select the names of files, which are read later."""
        found = []
        for node in main.nodes.values():
            source = main.input(node)
            if node.op != "ShardDataset" or source is None:
                continue
            before = node_defs.ancestors(main.nodes, source)
            names = {below.name for below in before}
            after = [other for other in main.nodes.values() if other.name not in names]
            if self._reads_files(after) and not self._reads_files(before):
                found.append(str(node.name))
        return tuple(found)

    def _reads_files(self, nodes: list[NodeDef]) -> bool:
        ops = (node.op for node in self._functions.nodes(nodes))
        return any(kind(op) in READERS or op in _READS_FILES for op in ops)

    def python_ops(self, main: Scope) -> tuple[str, ...]:
        """Return the Python functions, each as "op in the function that calls it"."""
        found = [node.op for node in main.nodes.values() if node.op in PYTHON_OPS]
        for name, function in self._functions.library.items():
            readable = readable_name(name)
            found += [f"{n.op} in {readable}" for n in function.node_def if n.op in PYTHON_OPS]
        return tuple(dict.fromkeys(found))


def _calls_function(nodes: list[NodeDef]) -> bool:
    return any(any(node_defs.function_refs(node)) for node in nodes)
