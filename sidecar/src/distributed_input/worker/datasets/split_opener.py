"""Opens splits: from a job's dataset to the elements of one split in one epoch.

A dataset is defined by a graph from the trainer, a tf.data function or a Python iterable. For each
of them, the same (seed, epoch, split) produces the same elements. The order depends on the seed and
the epoch only; it is the same for every split.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.tfdata import determinism, export
from distributed_input.tfdata.graph import canonical, serialization
from distributed_input.tfdata.random import seeds
from distributed_input.worker.datasets import entry_points
from distributed_input.worker.datasets.dataset_cache import DatasetCache
from distributed_input.worker.datasets.definitions import DefinitionChecks
from distributed_input.worker.datasets.element_specs import check_spec
from distributed_input.worker.datasets.graph_cache import GraphCache, SplitGraph
from distributed_input.worker.datasets.split_iterator import SplitIterator, iterate_dataset

_log = logs.get("worker.datasets")


class SplitOpener:
    """Opens splits and caches datasets and graphs. Thread-safe.

    Args:
        fetch: returns the serialized GraphDataset of a dataset id.
    """

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._datasets = DatasetCache(fetch)
        self._graphs = GraphCache()
        self._checks = DefinitionChecks()

    def open(
        self, job: types_pb2.Job, seed: int, epoch: int, split: int, batch_rows: int
    ) -> SplitIterator:
        """Return the elements of a split.

        Args:
            job: the complete job.
            seed: seed of the epochs' order.
            epoch: number of the epoch.
            split: number of the split.
            batch_rows: rows in an element. An element has more if the dataset's own batches are
                larger. 0 leaves the elements as they are. See `BatchSizer`.

        Raises:
            ConfigError: the entry point does not exist.
            DatasetFnError: the user's code raised an error.
            JobConflictError: the split has changed since the run started.
            SpecError: the elements of the split differ from the job's.
        """
        row = ElementSpec.from_json(job.row_spec)
        element = ElementSpec.from_json(job.element_spec)
        if not job.HasField("entry_point"):
            graphs = self._datasets.get(job.dataset_id)
            dataset = export.open_split(graphs, element, job.num_splits, split, seed, epoch)
            return iterate_dataset(dataset, row, job.batched, batch_rows)
        dataset = _open_entry_point(job, seed, epoch, split, self._graphs, self._checks)
        if not isinstance(dataset, tf.data.Dataset):
            return SplitIterator(iter(dataset), row, job.batched)
        check_spec(dataset, element, split)
        return iterate_dataset(dataset, row, job.batched, batch_rows)


def _open_entry_point(
    job: types_pb2.Job,
    seed: int,
    epoch: int,
    split: int,
    cache: GraphCache,
    checks: DefinitionChecks,
) -> Any:
    """Return the entry point's dataset for a split, with the epoch's seeds.

    A dataset with a graph is instantiated from the graph. This keeps
    `reshuffle_each_iteration=False` and gives each split its own augmentations. A generator has no
    graph, so it is seeded when it is built.
    """
    key = cache.key(job, seed, split)
    cached = cache.get(key)
    if cached is None:
        context = entry_points.split_context(job, seed, epoch, split, job.num_splits)
        dataset = entry_points.call(job.entry_point, context, mix(seed))
        if not isinstance(dataset, tf.data.Dataset):
            return dataset
        try:
            definition = canonical.serialize(dataset)
        except DatasetFnError as error:
            _log.debug("dataset has no graph", cause=str(error))
            return entry_points.call(job.entry_point, context, context.seed, functions_seeded=True)
        same = seed == job.seed and not context.varies
        checks.check(job, split, definition if same else None)
        determinism.force_determinism(definition)
        cached = SplitGraph(definition, dataset)
        if not context.varies:
            cache.put(key, cached)
    reseeded = serialization.instantiate(
        seeds.reseed(cached.graph, seed, epoch, split), cached.dataset.element_spec
    )
    # The Python functions in the graph exist only as long as their dataset does.
    reseeded._functions_of = cached.dataset  # noqa: SLF001 - an attribute that we add
    return reseeded
