"""Opens splits: from a job's dataset to the elements of one split in one epoch.

A dataset is defined by a graph from the trainer, a tf.data function or a Python iterable. For each
of them, the same (seed, epoch, split) produces the same elements. Before a selection such as
`shard`, the order depends on the seed and the epoch only: it is the same for every split.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.tfdata import (
    buffers,
    dataset_functions,
    determinism,
    export,
    joined_batches,
    record_sharding,
    row_skips,
    type_specs,
)
from distributed_input.tfdata.analysis import graph_analysis
from distributed_input.tfdata.graph import (
    batch_size,
    caches,
    canonical,
    node_defs,
    packing,
    serialization,
)
from distributed_input.tfdata.graph.node_defs import GraphDef
from distributed_input.tfdata.input_context import SplitInputContext
from distributed_input.tfdata.random import seeds, selections
from distributed_input.worker.datasets import definitions, entry_points
from distributed_input.worker.datasets.cache_files import (
    CacheWriter,
    SplitCaches,
    check_without_graph,
)
from distributed_input.worker.datasets.dataset_cache import DatasetCache
from distributed_input.worker.datasets.element_specs import check_spec
from distributed_input.worker.datasets.graph_cache import GraphCache, SplitGraph
from distributed_input.worker.datasets.iterator_state import StateIdentity, identify
from distributed_input.worker.datasets.shared_passes import PassReader, Records, SharedPasses
from distributed_input.worker.datasets.split_iterator import SplitIterator, iterate_dataset

_log = logs.get("worker.datasets")
_MAX_ARRAYS = 10_000


@dataclass(frozen=True)
class _Opened:
    """What a job's dataset returns for a split and an epoch.

    Attributes:
        dataset: a tf.data.Dataset or another iterable.
        writers: files that its caches write.
        identity: what its states belong to; None if it has no graph.
        shared_graph: its graph, if other splits may share a part of it.
        batch_size: rows in an element, if they are known and it matters.
        is_sized: whether the graph sets the rows in an element.
    """

    dataset: Any
    writers: Sequence[CacheWriter] = ()
    identity: StateIdentity | None = None
    shared_graph: GraphDef | None = None
    batch_size: int | None = None
    is_sized: bool = False


class SplitOpener:
    """Opens splits and caches datasets and graphs. Thread-safe.

    Args:
        fetch: returns the serialized GraphDataset of a dataset id.
        folder: folder for large constants; None: a temporary folder of this process.
        relaxed: random values may differ when a split runs again.
        cpus: CPUs of this worker, for AUTOTUNE; 0: those of the machine.
    """

    def __init__(
        self,
        fetch: Callable[[str], bytes],
        folder: Path | None = None,
        relaxed: bool = False,
        cpus: int = 0,
    ) -> None:
        self._cpus = cpus
        self._folder = folder
        self._relaxed = relaxed
        self._datasets = DatasetCache(fetch)
        self._graphs = GraphCache()
        self._passes = SharedPasses()
        self._arrays: dict[str, int] = {}  # the split in which a large array was first found
        self._serializing = threading.Lock()  # takes several times the memory of the graph

    def open(
        self,
        job: types_pb2.Job,
        seed: int,
        epoch: int,
        split: int,
        batch_rows: int,
        skipped: int = 0,
    ) -> SplitIterator:
        """Return the elements of a split.

        Args:
            job: the complete job.
            seed: seed of the epochs' order.
            epoch: number of the epoch.
            split: number of the split.
            batch_rows: rows in an element. An element has more if the dataset's own batches are
                larger. 0 leaves the elements as they are. See `BatchSizer`.
            skipped: number of rows to skip. Their functions are not called; see `row_skips`.

        Raises:
            ConfigError: the entry point does not exist, or its dataset caches to files in a way
                in which splits cannot have files of their own.
            DatasetFnError: the user's code raised an error.
            JobConflictError: the split has changed since the run started.
            SpecError: the elements of the split differ from the job's.
        """
        row = ElementSpec.from_json(job.row_spec)
        element = ElementSpec.from_json(job.element_spec)
        if job.HasField("entry_point"):
            opened = self._open_entry_point(job, seed, epoch, split, skipped, batch_rows)
            if not isinstance(opened.dataset, tf.data.Dataset):
                return SplitIterator(iter(opened.dataset), row, job.batched, from_python=True)
            check_spec(opened.dataset, element, split)
        else:
            opened = self._open_graph(job, element, seed, epoch, split, skipped, batch_rows)
        may_share = batch_rows and not skipped
        shared = self._share(job, row, split, batch_rows, opened) if may_share else None
        if shared is not None:
            return SplitIterator(shared, row, True)
        return iterate_dataset(
            opened.dataset,
            row,
            job.batched,
            0 if opened.is_sized else batch_rows,
            opened.batch_size,
            job.dataset_id,
            opened.writers,
            self._cpus,
            opened.identity,
            lambda rows: self.open(job, seed, epoch, split, batch_rows, rows).elements,
        )

    def _share(
        self, job: types_pb2.Job, row: ElementSpec, split: int, batch_rows: int, opened: _Opened
    ) -> PassReader | None:
        """Return the elements of a split from a pass that several splits share.

        None if the rows are not records that were only batched after the shard.
        """
        if opened.shared_graph is None:
            return None
        shard = record_sharding.find(opened.shared_graph, job.num_splits, split)
        if shard is None or shard.batches != int(job.batched):
            return None
        records = Records(
            shard, job.num_splits, job.dataset_id, job.first_run, self._cpus, opened.dataset
        )
        return self._passes.read(records, row, split, batch_rows)

    def _open_graph(
        self,
        job: types_pb2.Job,
        element: ElementSpec,
        seed: int,
        epoch: int,
        split: int,
        skipped: int,
        batch_rows: int,
    ) -> _Opened:
        """Return the dataset of a trainer's graph for a split and an epoch."""
        graphs = self._datasets.get(job.dataset_id)
        # `split_graph` adds random ops of its own, which do not define the order.
        definitions.check_order(job, packing.load_bare(graphs, split))
        graph, serial = export.split_graph(
            graphs, job.num_splits, split, seed, epoch, self._relaxed, job.shards_by_split
        )
        identity = identify(graph, job.row_spec, seed, epoch, split, batched=job.batched)
        graph = _skip(graph, identity, skipped)
        files = SplitCaches(split, job.num_splits)
        caches.rename(graph, files.path)
        packing.restore(graph, graphs, self._folder)
        buffers.bound_shuffles(graph)
        sized = _sized(job, graph, batch_rows)
        dataset = serialization.instantiate(sized or graph, type_specs.graph_spec(element))
        size, is_sized = _batch_size(job, graph), sized is not None
        if serial:
            dataset = determinism.run_serially(dataset)
            return _Opened(dataset, files.writers, identity, None, size, is_sized)
        return _Opened(dataset, files.writers, identity, graph, size, is_sized)

    def _open_entry_point(
        self,
        job: types_pb2.Job,
        seed: int,
        epoch: int,
        split: int,
        skipped: int,
        batch_rows: int,
    ) -> _Opened:
        """Return the dataset of an entry point for a split and an epoch.

        A dataset with a graph is instantiated from the graph. This keeps
        `reshuffle_each_iteration=False` and gives each split its own augmentations. A generator has
        no graph, so it is seeded when it is built.
        """
        key = self._graphs.key(job, seed, split)
        cached = self._graphs.get(key)
        if cached is not None and not packing.has_files(cached.graph, self._folder):
            cached = None
        version = [job.entry_point.target, job.entry_point.args_json]
        if cached is None:
            context = entry_points.split_context(job, seed, epoch, split, job.num_splits)
            dataset = entry_points.call(job.entry_point, context, mix(seed))
            if not isinstance(dataset, tf.data.Dataset):
                return _Opened(dataset)
            try:
                with self._serializing:
                    definition = canonical.serialize(dataset)
            except DatasetFnError as error:
                _log.debug("dataset has no graph", cause=str(error))
                return _Opened(self._without_graph(job, context))
            same = seed == job.seed and not context.varies
            definitions.check(job, split, definition if same else None)
            definitions.check_order(job, definition)
            own = selections.find(definition, job.num_splits, split, job.shards_by_split)
            determinism.force_determinism(definition)
            buffers.bound_shuffles(definition)
            size = definition.ByteSize()
            if not context.varies:
                is_shared = functools.partial(self._is_shared, split)
                definition = packing.store_arrays(definition, is_shared, self._folder)
            functions: Sequence[Any] = ()
            if node_defs.uses_python(definition):
                functions = dataset_functions.functions_of(dataset)
            else:
                size = definition.ByteSize()
            cached = SplitGraph(definition, dataset.element_spec, functions, own)
            if context.varies:
                version += [str(seed), str(epoch)]
            else:
                self._graphs.put(key, cached, size)
        files = SplitCaches(split, job.num_splits, version)
        graph = seeds.reseed(cached.graph, seed, epoch, split, cached.own)
        serial = not self._relaxed and determinism.make_repeatable(graph)
        identity = identify(graph, job.row_spec, seed, epoch, split, batched=job.batched)
        graph = _skip(graph, identity, skipped)
        caches.rename(graph, files.path)
        packing.restore(graph, folder=self._folder)
        sized = _sized(job, graph, batch_rows)
        reseeded = serialization.instantiate(sized or graph, cached.element_spec)
        reseeded._functions_of = cached.functions  # noqa: SLF001 - an attribute that we add
        rows, is_sized = _batch_size(job, graph), sized is not None
        if serial:
            reseeded = determinism.run_serially(reseeded)
            return _Opened(reseeded, files.writers, identity, None, rows, is_sized)
        return _Opened(reseeded, files.writers, identity, graph, rows, is_sized)

    def _is_shared(self, split: int, name: str) -> bool:
        """Return whether another split has the array of a name, too."""
        with self._serializing:
            first = self._arrays.setdefault(name, split)
            while len(self._arrays) > _MAX_ARRAYS:
                self._arrays.pop(next(iter(self._arrays)))
        return first != split

    def _without_graph(self, job: types_pb2.Job, context: SplitInputContext) -> tf.data.Dataset:
        """Return the dataset of an entry point that TensorFlow cannot serialize.

        Its random ops keep their state, so it runs serially if it has any.
        """
        entry = job.entry_point
        dataset = entry_points.call(entry, context, context.seed, functions_seeded=True)
        check_without_graph(dataset)
        if not self._relaxed and dataset_functions.depend_on_order(dataset):
            return determinism.run_serially(dataset)
        return dataset


def _batch_size(job: types_pb2.Job, graph: GraphDef) -> int | None:
    if not job.batched or not joined_batches.can_join(ElementSpec.from_json(job.row_spec)):
        return None
    return graph_analysis.analyze(graph).batch_size


def _sized(job: types_pb2.Job, graph: GraphDef, batch_rows: int) -> GraphDef | None:
    """Return the graph with `batch_rows` rows in an element, if its last op batches dense rows."""
    if not (batch_rows and job.batched and ElementSpec.from_json(job.row_spec).is_static):
        return None
    return batch_size.with_batch_size(graph, batch_rows)


def _skip(graph: GraphDef, identity: StateIdentity, rows: int) -> GraphDef:
    if not rows:
        return graph
    assert identity.skip is not None
    return row_skips.skip(graph, identity.skip, rows)
