"""Properties of a dataset that its graph shows without running it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.function_names import readable_name
from distributed_input.tfdata.graph.node_defs import PYTHON_OPS, GraphDef, NodeDef

# The input indexes of batch_size and drop_remainder (None: no such input).
_BATCHES = {
    "BatchDataset": (-1, None),
    "BatchDatasetV2": (-2, -1),
    "ParallelBatchDataset": (-3, -1),
    "MapAndBatchDataset": (-3, -1),
    "PaddedBatchDataset": (1, None),
    "PaddedBatchDatasetV2": (1, -1),
}
# Datasets whose elements have as many rows as those of their input. For a map this is an
# assumption, as in TensorFlow.
_KEEPS = re.compile(
    r"^(Map|ParallelMap|ParallelMapV2|Filter|ParallelFilter|Prefetch|Repeat|Shuffle\w*|Skip"
    r"|Take|TakeWhile|Cache|Options|Shard|AssertCardinality|AssertNext|Model|Optimize|Finalize"
    r"|Sampling|Unique|IgnoreErrors|MaxIntraOpParallelism|PrivateThreadPool|ThreadPool"
    r"|Rebatch|Sleep|BytesProducedStats|LatencyStats|GlobalShuffle)(Dataset)?(V\d)?$"
)
_FLATTENS = re.compile(r"^(Parallel|LegacyParallel)?(Interleave|FlatMap)Dataset(V\d)?$")
_JOINS = ("ZipDataset", "ConcatenateDataset")
_SKIPPING = ("RangeDataset", "TensorSliceDataset")
_READERS = re.compile(
    r"^((TFRecord|TextLine|FixedLengthRecord|CSV|Sql|LMDB|Avro|Parquet|GrpcIO|IO)\w*Dataset(V\d)?"
    r"|ReadFile|WholeFileReaderV2|ReaderReadV2)$"
)


@dataclass(frozen=True)
class GraphAnalysis:
    """The properties of a dataset that matter for running it as splits.

    Attributes:
      batch_size: rows in an element, by the outermost batch op; None if it is unknown.
      batched: the dataset has such a batch op.
      drop_remainder: a batch op drops an incomplete batch at the end of every split.
      shards_source: the shard op skips the elements of other splits at no cost.
      record_shard: name of the shard op that keeps some of the records that were read or computed
        before it, so that every split reads or computes all of them; "" if there is none.
      file_shards: names of the shard ops that select the names of files, which are read later.
      python_ops: Python functions in the graph, which cannot run in another process.
      infinite: the dataset never ends.
      useless_cache: a cache in memory is read only once.
    """

    batch_size: int | None
    batched: bool
    drop_remainder: bool
    shards_source: bool
    record_shard: str
    file_shards: tuple[str, ...]
    python_ops: tuple[str, ...]
    infinite: bool
    useless_cache: bool


def analyze(graph_def: GraphDef) -> GraphAnalysis:
    """Analyze a graph, canonical or not."""
    walk = _Walk(graph_def)
    main = _Scope(graph_def.node, node_defs.retval(graph_def).input[0])
    batched, size = walk.batch(main, main.output)
    return GraphAnalysis(
        batch_size=size,
        batched=batched,
        drop_remainder=any(_drops(scope, node) for scope, node in walk.chain(main, main.output)),
        shards_source=walk.shards_source(main),
        record_shard=walk.record_shard(main),
        file_shards=walk.file_shards(main),
        python_ops=walk.python_ops(main),
        infinite=walk.infinite(main, main.output),
        useless_cache=caches.has_useless_cache(graph_def),
    )


class _Scope:
    """The nodes of the graph or of a function, and the dataset that it returns."""

    def __init__(self, nodes: Any, output: str) -> None:
        self.nodes = node_defs.by_name(nodes)
        self.output = self.nodes.get(node_defs.source_of(output))

    def input(self, node: NodeDef, index: int = 0) -> NodeDef | None:
        """Return the node of an input, or None if it is an argument of the function."""
        inputs = node_defs.data_inputs(node)
        return self.nodes.get(node_defs.source_of(inputs[index])) if index < len(inputs) else None

    def datasets(self, node: NodeDef) -> list[NodeDef]:
        """Return the inputs of a node that are datasets."""
        found = (self.nodes.get(node_defs.source_of(name)) for name in node_defs.data_inputs(node))
        return [below for below in found if below is not None and "Dataset" in below.op]


class _Walk:
    """Walks through a graph and its functions, from a dataset towards its sources."""

    def __init__(self, graph_def: GraphDef) -> None:
        self._library = {f.signature.name: f for f in graph_def.library.function}

    def function(self, node: NodeDef) -> _Scope | None:
        """Return the function in which a node creates datasets; skip functions that only call."""
        for ref in node_defs.function_refs(node):
            function = self._library.get(ref.name)
            if function is None or not function.signature.output_arg:
                continue
            first = function.signature.output_arg[0].name
            scope = _Scope(function.node_def, function.ret[first])
            while scope.output is not None and scope.output.op == "Identity":
                scope.output = scope.input(scope.output)
            if scope.output is not None and "PartitionedCall" in scope.output.op:
                return self.function(scope.output) or scope
            return scope
        return None

    def batch(self, scope: _Scope, node: NodeDef | None) -> tuple[bool, int | None]:
        """Return whether a dataset is batched, and the batch size or None."""
        for within, below in self.chain(scope, node):
            if below.op in _BATCHES:
                value = node_defs.input_value(within.nodes, below, _BATCHES[below.op][0])
                return True, None if value is None else int(value)
            if below.op in _JOINS:
                sides = {self.batch(within, side) for side in within.datasets(below)}
                return sides.pop() if len(sides) == 1 else (False, None)
        return False, None

    def chain(self, scope: _Scope, node: NodeDef | None) -> Iterator[tuple[_Scope, NodeDef]]:
        """Yield a dataset and its inputs, while the elements are only batched or flattened."""
        while node is not None:
            yield scope, node
            if _FLATTENS.match(node.op):
                inner = self.function(node)
                if inner is None:
                    return
                scope, node = inner, inner.output
            elif node.op in ("Identity", *_BATCHES) or _KEEPS.match(node.op):
                node = scope.input(node)
            else:
                return

    def infinite(self, scope: _Scope, node: NodeDef | None) -> bool:
        """Return whether a dataset never ends."""
        if node is None:
            return False
        decided = _ends(scope, node)
        if decided is not None:
            return not decided
        inputs = scope.datasets(node)
        endless = [self.infinite(scope, below) for below in inputs]
        if node.op == "ZipDataset":
            return bool(endless) and all(endless)
        if node.op == "ConcatenateDataset":
            return any(endless)
        if node.op == "DirectedInterleaveDataset":  # a selector, and what it selects from
            return endless[0] and any(endless[1:])
        if _FLATTENS.match(node.op):
            inner = self.function(node)
            if inner is not None and self.infinite(inner, inner.output):
                return True
        return bool(endless) and endless[0]

    def shards_source(self, main: _Scope) -> bool:
        """Return whether all shard ops, at least one, read a source that skips elements."""
        shards = [node for node in main.nodes.values() if node.op == "ShardDataset"]
        sources = [main.input(node) for node in shards]
        return bool(shards) and all(one is not None and one.op in _SKIPPING for one in sources)

    def record_shard(self, main: _Scope) -> str:
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

    def file_shards(self, main: _Scope) -> tuple[str, ...]:
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
        return any(_READERS.match(node.op) for node in self._all(nodes))

    def python_ops(self, main: _Scope) -> tuple[str, ...]:
        """Return the Python functions, each as "op in the function that calls it"."""
        found = [node.op for node in main.nodes.values() if node.op in PYTHON_OPS]
        for name, function in self._library.items():
            readable = readable_name(name)
            found += [f"{n.op} in {readable}" for n in function.node_def if n.op in PYTHON_OPS]
        return tuple(dict.fromkeys(found))

    def _all(self, nodes: list[NodeDef]) -> Iterator[NodeDef]:
        """Yield the nodes, and the nodes of the functions that they call."""
        seen: set[str] = set()
        queue = list(nodes)
        while queue:
            node = queue.pop()
            yield node
            names = [node.op, *(ref.name for ref in node_defs.function_refs(node))]
            for name in names:
                if name in self._library and name not in seen:
                    seen.add(name)
                    queue += self._library[name].node_def


def _calls_function(nodes: list[NodeDef]) -> bool:
    return any(any(node_defs.function_refs(node)) for node in nodes)


def _drops(scope: _Scope, node: NodeDef) -> bool:
    at = _BATCHES.get(node.op, (0, None))[1]
    return at is not None and bool(node_defs.input_value(scope.nodes, node, at))


def _ends(scope: _Scope, node: NodeDef) -> bool | None:
    """Return whether a dataset ends, or None if that depends on its inputs."""
    if node.op in ("RandomDataset", "RandomDatasetV2"):
        return False
    if node.op in ("RangeDataset", "TakeWhileDataset"):
        return True
    if node.op == "TakeDataset":
        count = node_defs.input_value(scope.nodes, node, 1)
        return True if count is None or count >= 0 else None
    if node.op.startswith(("RepeatDataset", "ShuffleAndRepeatDataset")):
        count = node_defs.input_value(scope.nodes, node, 1 if node.op == "RepeatDataset" else 4)
        return False if count is not None and count < 0 else None
    return None
