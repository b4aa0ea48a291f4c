"""Cache of the splits' graphs, which epochs share.

Building a graph calls the user's dataset_fn and traces its functions. This takes tenths of a second
of Python, which is longer than running a small split. Epochs differ only in the seeds in the graph,
which are written for each epoch, unless dataset_fn itself used the seed or the epoch.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.api.proto import types_pb2
from distributed_input.assignment.jobs import set_run
from distributed_input.tfdata.graph.node_defs import GraphDef
from distributed_input.tfdata.random.selections import OwnOps

_MAX_BYTES = 64 << 20
_MAX_GRAPH_BYTES = 4 << 20  # a larger graph contains data: building it again costs less memory


@dataclass(frozen=True)
class SplitGraph:
    """The graph of a split.

    Attributes:
        graph: canonical graph, without the seeds of an epoch and without large arrays.
        element_spec: the nested TypeSpecs of its elements.
        functions: what keeps its Python functions, if it has any. They may hold large arrays.
        own: its ops whose seeds depend on the split.
    """

    graph: GraphDef
    element_spec: Any
    functions: Sequence[Any]
    own: OwnOps


class GraphCache:
    """The most recently used graphs, up to a number of bytes. Thread-safe."""

    def __init__(self) -> None:
        self._graphs: OrderedDict[bytes, tuple[SplitGraph, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @staticmethod
    def key(job: types_pb2.Job, seed: int, split: int) -> bytes:
        """Return the key of a split's graph: all values that the graph depends on."""
        without_run = types_pb2.Job()
        without_run.CopyFrom(job)
        set_run(without_run, types_pb2.Job())
        return without_run.SerializeToString(deterministic=True) + b"/%d/%d" % (seed, split)

    def get(self, key: bytes) -> SplitGraph | None:
        """Return the graph of a key; None if it is not in the cache."""
        with self._lock:
            if key not in self._graphs:
                return None
            self._graphs.move_to_end(key)
            return self._graphs[key][0]

    def put(self, key: bytes, graph: SplitGraph, size: int) -> None:
        """Store a graph, unless it is larger than `_MAX_GRAPH_BYTES`.

        Args:
            key: see `key`.
            graph: the graph.
            size: its bytes, with those of what its functions hold.
        """
        if size > _MAX_GRAPH_BYTES:
            return
        with self._lock:
            _, replaced = self._graphs.pop(key, (None, 0))
            self._graphs[key] = graph, size
            self._bytes += size - replaced
            while self._bytes > _MAX_BYTES:
                _, (_, evicted) = self._graphs.popitem(last=False)
                self._bytes -= evicted
