"""Splits' graphs, kept from one epoch to the next.

To build one calls the user's dataset_fn and traces its functions: tenths of a second of Python,
more than running a small split takes. An epoch differs from another by the seeds in the graph,
which are written anew each time, unless dataset_fn itself asked for them.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from dataclasses import dataclass

import tensorflow as tf

from distributed_input.api.proto import types_pb2
from distributed_input.tfdata.graph.node_defs import GraphDef

_BYTES = 64 << 20  # kept at most
_LARGE_BYTES = 4 << 20  # holds data: better read again than kept


@dataclass(frozen=True)
class Definition:
    """A split as dataset_fn defines it.

    Attributes:
        graph: canonical, without an epoch's seeds.
        made: the dataset that dataset_fn returned; it owns the graph's Python functions.
    """

    graph: GraphDef
    made: tf.data.Dataset


class Definitions:
    """Those used last, up to a number of bytes. Thread-safe."""

    def __init__(self) -> None:
        self._kept: OrderedDict[bytes, tuple[Definition, int]] = OrderedDict()
        self._bytes = 0
        self._lock = threading.Lock()

    @staticmethod
    def key(job: types_pb2.Job, seed: int, split: int) -> bytes:
        """What a definition follows from."""
        return job.SerializeToString(deterministic=True) + b"/%d/%d" % (seed, split)

    def get(self, key: bytes) -> Definition | None:
        """What is kept under a key."""
        with self._lock:
            if key not in self._kept:
                return None
            self._kept.move_to_end(key)
            return self._kept[key][0]

    def keep(self, key: bytes, definition: Definition) -> None:
        """Keep one; one that is large is not."""
        size = definition.graph.ByteSize()
        if size > _LARGE_BYTES:
            return
        with self._lock:
            _, before = self._kept.pop(key, (None, 0))
            self._kept[key] = definition, size
            self._bytes += size - before
            while self._bytes > _BYTES:
                _, (_, gone) = self._kept.popitem(last=False)
                self._bytes -= gone
