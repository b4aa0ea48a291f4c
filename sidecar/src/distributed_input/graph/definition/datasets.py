"""The datasets of a graph: what their ops do, and walks from a dataset towards its sources.

Ops are named by their kinds: that of `ParallelMapDatasetV2` is `ParallelMap`. Each family has the
ops that are known to do so.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import Any

from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef

_KIND = re.compile(r"^(?:Experimental)?(.*?)(?:Dataset)?(?:V\d+)?$")

READERS = frozenset("TFRecord TextLine FixedLengthRecord CSV Sql LMDB Avro Parquet".split())
"""Datasets that read files."""
SLICES = frozenset(["Tensor", "TensorSlice", "SparseTensorSlice"])
"""Datasets of values in the graph."""
MAPS = frozenset(["Map", "ParallelMap"])
FILTERS = frozenset(["Filter", "ParallelFilter"])
FLATTENS = frozenset("FlatMap Interleave ParallelInterleave LegacyParallelInterleave".split())
"""Ops that make a dataset of each element, and return the elements of these."""
PARALLEL = frozenset(
    "ParallelMap MapAndBatch ParallelInterleave LegacyParallelInterleave ParallelFilter".split()
)
"""Ops that call their function for several elements at once."""
BATCHES = {"Batch": 1, "ParallelBatch": 1, "MapAndBatch": -3, "PaddedBatch": 1, "Rebatch": 1}
"""Ops that batch rows, and the index of their input batch_size."""
REPEATS = frozenset(["Repeat", "ShuffleAndRepeat"])
PASSES = frozenset(
    "Prefetch Options MaxIntraOpParallelism PrivateThreadPool Model Optimize Finalize"
    " Rewrite".split()  # enumerate in a function has a RewriteDataset
)
"""Ops that return their input's elements, in its order."""
REORDERS = PASSES | REPEATS | {"Shuffle", "Cache"}
"""Ops that return all elements of their input as they are, in any order, perhaps several times."""
KNOWN = frozenset(
    "Range Tensor TensorSlice SparseTensorSlice Random TextLine TFRecord FixedLengthRecord Map"
    " ParallelMap MapAndBatch Filter FlatMap Interleave ParallelInterleave Scan TakeWhile"
    " GroupByWindow GroupByReducer Batch ParallelBatch PaddedBatch Unbatch Rebatch Window Take"
    " Skip Shard Repeat Shuffle ShuffleAndRepeat Concatenate Zip DirectedInterleave Cache Prefetch"
    " Options Model AssertCardinality Unique ParseExample Reduce DatasetToSingleElement"
    " DatasetCardinality".split()
)
"""Functions of their inputs and of files, whose whole state TensorFlow saves. `Cache` is one: while
a split writes the files of a cache, it has no states."""


@functools.lru_cache(maxsize=1024)
def kind(op: str) -> str:
    """Return what a dataset op does; "" for another op."""
    found = _KIND.match(op)
    return found.group(1) if found is not None and "Dataset" in op else ""


class Scope:
    """The nodes of the graph or of a function, and the dataset that it returns.

    `result` is the name of the dataset, and `output` is its node: None if it is an argument.
    """

    def __init__(
        self,
        nodes: Iterable[NodeDef],
        output: str,
        library: Mapping[str, FunctionDef],
        arguments: Sequence[str] = (),
    ) -> None:
        self.nodes = node_defs.by_name(nodes)
        self.library, self.arguments = library, arguments
        self.result = node_defs.source_of(output)
        while self.result in self.nodes and self.nodes[self.result].op == "Identity":
            self.result = node_defs.source_of(node_defs.data_inputs(self.nodes[self.result])[0])
        self.output = self.nodes.get(self.result)

    def input(self, node: NodeDef, index: int = 0) -> NodeDef | None:
        """Return the node of an input, or None if it is an argument of the function."""
        return node_defs.input_node(self.nodes, node, index)

    def value(self, node: NodeDef, index: int) -> Any:
        """Return the value of an input that is a constant of numbers, or None."""
        return node_defs.input_value(self.nodes, node, index)

    def datasets(self, node: NodeDef) -> list[NodeDef]:
        """Return the inputs of a node that are datasets."""
        found = (self.nodes.get(node_defs.source_of(name)) for name in node_defs.data_inputs(node))
        return [below for below in found if below is not None and "Dataset" in below.op]

    def chain(self) -> Iterator[NodeDef]:
        """Yield the dataset and its inputs, up to the first op without just one dataset."""
        node = self.output
        while node is not None:
            if node.op != "Identity":
                yield node
            below = [self.input(node)] if node.op == "Identity" else self.datasets(node)
            node = below[0] if len(below) == 1 else None

    def tail(self, kinds: Collection[str]) -> tuple[list[NodeDef], NodeDef | None]:
        """Return the last ops, as long as they are of these kinds, and the op before them.

        The last op comes first. There is no op before them if they have several inputs.
        """
        passed: list[NodeDef] = []
        for node in self.chain():
            if kind(node.op) not in kinds:
                return passed, node
            passed.append(node)
        return passed, None

    def inner(self, node: NodeDef) -> Scope | None:
        """Return the function in which a node creates datasets; skip functions that only call."""
        for ref in node_defs.function_refs(node):
            function = self.library.get(ref.name)
            if function is None or not function.signature.output_arg:
                continue
            first = function.signature.output_arg[0].name
            arguments = [argument.name for argument in function.signature.input_arg]
            scope = Scope(function.node_def, function.ret[first], self.library, arguments)
            if scope.output is not None and "PartitionedCall" in scope.output.op:
                return self.inner(scope.output) or scope
            return scope
        return None

    def with_called(self, nodes: Iterable[NodeDef]) -> list[NodeDef]:
        """Return nodes, and the nodes of all functions that they call."""
        return node_defs.with_called(self.library, nodes)


def main_scope(graph_def: GraphDef) -> Scope:
    """Return the nodes of the graph and its dataset."""
    output = node_defs.retval(graph_def).input[0]
    return Scope(graph_def.node, output, node_defs.library(graph_def))
