"""Splits of an entry point that each split is compared with, to find what selects its rows."""

from __future__ import annotations

import threading
from collections import OrderedDict

from distributed_input.api.proto import types_pb2
from distributed_input.tfdata.random import selections
from distributed_input.tfdata.random.selections import Definitions
from distributed_input.worker.datasets import definitions
from distributed_input.worker.datasets.graph_cache import GraphCache

_MAX_DATASETS = 64


class OtherSplits:
    """The definitions of the ops of these splits, of the last datasets. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # a dataset is built once
        self._known: OrderedDict[tuple[bytes, int], list[Definitions]] = OrderedDict()

    def get(self, job: types_pb2.Job, seed: int, epoch: int, varies: bool) -> list[Definitions]:
        """Return the definitions of some splits; see `selections.references`.

        Args:
            job: the complete job.
            seed: seed of the epochs' order.
            epoch: number of the epoch.
            varies: whether the dataset depends on the epoch.
        """
        epoch = epoch if varies else 0
        key = GraphCache.key(job, seed, job.num_splits), epoch
        with self._lock:
            if key not in self._known:
                self._known[key] = [
                    selections.define(definitions.graph_of(job, split, seed, epoch))
                    for split in selections.references(job.num_splits)
                ]
            self._known.move_to_end(key)
            while len(self._known) > _MAX_DATASETS:
                self._known.popitem(last=False)
            return self._known[key]
