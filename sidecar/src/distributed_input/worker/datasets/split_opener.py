"""Opens splits: from a job's dataset to the elements of one split in one epoch.

A dataset is defined by a graph from the trainer, a tf.data function or a Python iterable. For each
of them, the same (seed, epoch, split) produces the same elements. Before a selection such as
`shard`, the order depends on the seed and the epoch only: it is the same for every split.

This module is long because all ways to a split share its caches.
"""

from __future__ import annotations

import functools
import hashlib
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.graph import (
    batching,
    boundaries,
    buffers,
    determinism,
    export,
    inline_maps,
    row_skips,
    sharding,
    type_specs,
)
from distributed_input.graph.analysis import files_read
from distributed_input.graph.analysis.batches import find_batches
from distributed_input.graph.analysis.files_read import UnknownFilesError
from distributed_input.graph.definition import (
    caches,
    canonical,
    gathering,
    node_defs,
    packing,
    pushdown,
    serialization,
)
from distributed_input.graph.definition.datasets import main_scope
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.graph.random import seeds, selections
from distributed_input.graph.random.selections import OwnOps
from distributed_input.graph.user_code import SplitInputContext
from distributed_input.order.indexed import Indexed
from distributed_input.order.jobs import set_run
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.worker.datasets import definitions, entry_points, record_checks
from distributed_input.worker.datasets.bad_records import SplitErrors
from distributed_input.worker.datasets.boundary_files import (
    BoundaryFiles,
    BoundarySources,
    BoundaryStore,
)
from distributed_input.worker.datasets.cache_files import SplitCaches, check_without_graph
from distributed_input.worker.datasets.dataset_cache import DatasetCache, LruCache
from distributed_input.worker.datasets.definitions import SplitDefinition
from distributed_input.worker.datasets.iterator_state import StateIdentity, identify
from distributed_input.worker.datasets.shared_passes import PassReader, Records, SharedPasses
from distributed_input.worker.datasets.split_iterator import SplitIterator, iterate_dataset

INDEXED = "__getitem__"
_log = logs.get("worker.datasets")
_MAX_ARRAYS = 10_000
_MAX_BYTES = 64 << 20
_MAX_GRAPH_BYTES = 4 << 20  # a larger graph has data: building it again costs less memory


class _Opening(NamedTuple):
    """The arguments of `SplitOpener.open`."""

    job: types_pb2.Job
    seed: int
    epoch: int
    split: int
    batch_rows: int
    skipped: int
    inline: Callable[[], bool]
    guards: RecordGuards | None
    may_write: bool = False


class RecordGuards(NamedTuple):
    """How a split leaves out records that fail; see `record_checks.guard`."""

    errors: SplitErrors
    has_files: bool


class SplitSources(NamedTuple):
    """What the rows of a split depend on besides its definition.

    Attributes:
        files: names of the files that it reads.
        epoch: whether the rows depend on the epoch.
        boundary: whether what is before its boundary may be stored as well.
    """

    files: tuple[str, ...]
    epoch: bool
    boundary: bool = False


@dataclass(frozen=True)
class SplitGraph:
    """The graph of a split of an entry point, which all epochs share.

    Building it calls the user's dataset_fn and traces its functions. This takes tenths of a second
    of Python, which is longer than running a small split. Epochs differ only in the seeds, unless
    dataset_fn itself used the seed or the epoch: then the graph `varies`. It has no large arrays.
    `functions` keep its Python functions, which may hold large arrays. `own` are the ops whose
    seeds depend on the split.
    """

    graph: GraphDef
    element_spec: Any
    functions: Sequence[Any]
    own: OwnOps
    varies: bool


@dataclass(frozen=True)
class _SeededGraph:
    """The graph of a split in one epoch.

    Its large arrays are in the message `arrays`, or in files if that is None. `files` are those of
    its caches.
    """

    graph: GraphDef
    is_serial: bool
    element_spec: Any
    files: SplitCaches
    arrays: types_pb2.GraphDataset | None = None
    functions: Sequence[Any] = ()


class SplitOpener:
    """Opens splits and caches datasets and graphs. Thread-safe.

    Args:
        fetch: returns the serialized GraphDataset of a dataset id.
        folder: folder for large constants; None: a temporary folder of this process.
        relaxed: random values may differ when a split runs again.
        cpus: CPUs of this worker, for AUTOTUNE; 0: those of the machine.
        prefixes: what is before boundaries; None: it is always computed.
    """

    def __init__(
        self,
        fetch: Callable[[str], bytes],
        folder: Path | None = None,
        relaxed: bool = False,
        cpus: int = 0,
        prefixes: BoundaryStore | None = None,
    ) -> None:
        self._cpus = cpus
        self._prefixes = prefixes
        self._folder = folder
        self._relaxed = relaxed
        self._datasets = DatasetCache(fetch)
        self._graphs: LruCache[SplitGraph] = LruCache(_MAX_BYTES)
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
        inline: Callable[[], bool] = lambda: False,
        guards: RecordGuards | None = None,
        may_write: bool = False,
    ) -> SplitIterator:
        """Return the elements of a split.

        An element has `batch_rows` rows, or more if the dataset's own batches are larger. 0 leaves
        the elements as they are; see `BatchSizer`.

        The first rows, at most `skipped`, are skipped if the split can: their functions are not
        called. `SplitIterator.skipped` has their number; see `row_skips`.

        If `inline` returns True, once the graph is built, maps run in the thread of the split; see
        `inline_maps`.

        With `guards`, the split leaves out records that fail, as far as its dataset has a graph or
        is read by index.

        What is before the split's boundary is read if it is stored. With `may_write`, it is stored
        otherwise, and the split has no state. The iterator may then raise a BoundaryError.

        Raises:
            ConfigError: the entry point does not exist, or its dataset caches to files in a way
                in which splits cannot have files of their own.
            DatasetFnError: the user's code raised an error.
            JobConflictError: the split has changed since the run started.
            SpecError: the elements of the split differ from the job's.
        """
        of = _Opening(job, seed, epoch, split, batch_rows, skipped, inline, guards, may_write)
        row = ElementSpec.from_json(job.row_spec)
        element = ElementSpec.from_json(job.element_spec)
        if not job.HasField("entry_point"):
            return self._iterate(of, row, self._trainers_graph(of, element))
        found = self._of_entry_point(of)
        if isinstance(found, _SeededGraph):
            type_specs.check_spec(found.element_spec, element, split)
            return self._iterate(of, row, found)
        if isinstance(found, Indexed) or job.indexed_rows:
            definitions.check_indexed(job, found)
            skipped = 0 if job.batched else skipped  # an item has many rows
            failed = guards and functools.partial(guards.errors.skip, step=INDEXED)
            excludes = None
            if guards and guards.errors.excluded:
                excludes = functools.partial(guards.errors.exclude, INDEXED)
            elements = found.rows(split, job.num_splits, seed, epoch, skipped, failed, excludes)
            return SplitIterator(
                elements, row, job.batched, from_python=True, is_indexed=True, skipped=skipped
            )
        if not isinstance(found, tf.data.Dataset):
            return SplitIterator(iter(found), row, job.batched, from_python=True)
        type_specs.check_spec(found.element_spec, element, split)
        return iterate_dataset(
            found, row, job.batched, batch_rows, None, job.dataset_id, cpus=self._cpus
        )

    def sources(self, job: types_pb2.Job, seed: int, epoch: int, split: int) -> SplitSources:
        """Return what the rows of a split depend on besides its definition.

        Raises:
            UnknownFilesError: its graph does not show that, or it has no graph.
            Exception: as `open`.
        """
        both = [_Opening(job, seed, each, split, 0, 0, bool, None) for each in (epoch, epoch + 1)]
        arrays = None
        if job.HasField("entry_point"):
            found = self._definition(both[0])  # of all epochs; a large one is not cached
            if not isinstance(found, SplitGraph) or found.varies:
                raise UnknownFilesError("its function reads the epoch, or returns no graph")
            graphs = [seeds.reseed(found.graph, seed, of.epoch, split, found.own) for of in both]
        else:
            element = ElementSpec.from_json(job.element_spec)
            seeded = [self._trainers_graph(of, element) for of in both]
            graphs, arrays = [one.graph for one in seeded], seeded[0].arrays
        first, second = map(node_defs.to_bytes, graphs)
        packing.restore(graphs[0], arrays, self._folder)
        has_boundary = boundaries.has_boundary(graphs[0])
        return SplitSources(files_read.find(graphs[0]), first != second, has_boundary)

    def _iterate(self, of: _Opening, row: ElementSpec, found: _SeededGraph) -> SplitIterator:
        """Return the elements of a graph."""
        job, prefix = of.job, self._prefix(of, found)
        graph, identity = _with_files(of, found, prefix)
        skipped = 0
        if identity.skip is not None and not found.files.writers:
            skipped = of.skipped - of.skipped % identity.skip.rows
        if skipped and identity.skip is not None:
            graph = row_skips.skip(graph, identity.skip, skipped)
        packing.restore(graph, found.arrays, self._folder)
        buffers.bound_shuffles(graph)
        sized = None
        if of.batch_rows and job.batched and row.is_static:
            sized = batching.with_batch_size(graph, of.batch_rows)
        if of.guards is not None:
            return self._iterate_guarded(of, row, found, graph, of.guards)
        pushed = gathering.gather(pushdown.push(graph if sized is None else sized))
        may_inline = not found.is_serial and inline_maps.can_inline(pushed)
        is_inlined = may_inline and of.inline()
        final = inline_maps.inline_maps(pushed) if is_inlined else pushed
        dataset = serialization.instantiate(final, found.element_spec)
        dataset._functions_of = found.functions  # noqa: SLF001 - an attribute that we add
        if found.is_serial:
            dataset = determinism.run_serially(dataset)
        elif of.batch_rows and not skipped:
            shared = self._share(of, row, graph, dataset)
            if shared is not None:
                return SplitIterator(shared, row, True)
        if is_inlined:
            dataset = dataset.with_options(inline_maps.options())
            identity = replace(identity, inline=True, parallel_calls=0)
        elif may_inline:
            identity = replace(identity, may_inline=True)
        needs_size = job.batched and batching.can_join(row)
        return iterate_dataset(
            dataset,
            row,
            job.batched,
            0 if sized else of.batch_rows,
            find_batches(main_scope(graph)).size if needs_size else None,
            job.dataset_id,
            found.files.writers,
            self._cpus,
            identity,
            skipped,
            prefix,
        )

    def _prefix(self, of: _Opening, found: _SeededGraph) -> BoundaryFiles | None:
        """Return the files of what is before a split's boundary; None: it is computed."""
        if self._prefixes is None or of.guards or not boundaries.has_boundary(found.graph):
            return None
        key = _graph_key(of.job, of.seed, of.split, of.job.run)
        sources = functools.partial(self._prefix_sources, of, found)
        return self._prefixes.find(of.job, key, of.split, of.may_write, sources)

    def _prefix_sources(self, of: _Opening, found: _SeededGraph) -> BoundarySources:
        """Return what the elements before the boundary depend on.

        Raises:
            UnknownFilesError: they cannot be stored.
        """
        job = of.job
        if job.infinite or job.varies or job.HasField("bad_records"):
            raise UnknownFilesError("it never ends, skips records, or its function reads the epoch")
        if found.is_serial:
            raise UnknownFilesError("it has ops that keep a state")
        if sharding.find_record_shard(found.graph, job.num_splits, of.split, job.batched):
            raise UnknownFilesError("its splits share a pass")
        following = of._replace(epoch=of.epoch + 1)
        if job.HasField("entry_point"):
            if getattr(self._definition(of), "varies", True):
                raise UnknownFilesError("the function reads the epoch in this split")
            other = self._of_entry_point(following)
        else:
            other = self._trainers_graph(following, ElementSpec.from_json(job.element_spec))
        assert isinstance(other, _SeededGraph)
        prefix, of_epoch = (boundaries.before(pushdown.push(one.graph)) for one in (found, other))
        digest, other_digest = map(_digest, (prefix, of_epoch))
        packing.restore(prefix, found.arrays, self._folder)
        files = files_read.find(prefix)
        if digest != other_digest:
            raise UnknownFilesError("what is before its boundary depends on the epoch")
        return BoundarySources(digest, files)

    def _iterate_guarded(
        self,
        of: _Opening,
        row: ElementSpec,
        found: _SeededGraph,
        graph: GraphDef,
        guards: RecordGuards,
    ) -> SplitIterator:
        """Return the elements of a graph without the records that fail.

        The guards are behind ops of the user's own dataset. So the rows do not depend on the size
        of batches, or on other optimizations.
        """
        guarded, kept = record_checks.guard(pushdown.push(graph), *guards)
        dataset = serialization.instantiate(guarded, found.element_spec)
        dataset._functions_of = found.functions, kept  # noqa: SLF001 - an attribute that we add
        if found.is_serial:
            dataset = determinism.run_serially(dataset)
        size = find_batches(main_scope(graph)).size if of.job.batched else None
        writers = found.files.writers
        return iterate_dataset(
            dataset,
            row,
            of.job.batched,
            of.batch_rows,
            size,
            of.job.dataset_id,
            writers,
            self._cpus,
        )

    def _share(
        self, of: _Opening, row: ElementSpec, graph: GraphDef, dataset: tf.data.Dataset
    ) -> PassReader | None:
        """Return the elements of a split from a pass that several splits share.

        None if the rows are not records that were only batched after the shard.
        """
        job = of.job
        shard = sharding.find_record_shard(graph, job.num_splits, of.split, job.batched)
        if shard is None:
            return None
        records = Records(shard, job.num_splits, job.dataset_id, job.first_run, self._cpus, dataset)
        return self._passes.read(records, row, of.split, of.batch_rows)

    def _trainers_graph(self, of: _Opening, element: ElementSpec) -> _SeededGraph:
        """Return the graph that a trainer sent."""
        job = of.job
        graphs = self._datasets.get(job.dataset_id)
        # `split_graph` adds random ops of its own, which do not define the order.
        definitions.check_order(job, packing.load_bare(graphs, of.split))
        graph, is_serial = export.split_graph(
            graphs, job.num_splits, of.split, of.seed, of.epoch, self._relaxed, job.shards_by_split
        )
        files = SplitCaches(of.split, job.num_splits)
        return _SeededGraph(graph, is_serial, type_specs.graph_spec(element), files, graphs)

    def _of_entry_point(self, of: _Opening) -> _SeededGraph | Iterable[Any]:
        """Return the graph of an entry point's dataset.

        Return the dataset, or the Python iterable, if it has no graph. A dataset with a graph is
        instantiated from the graph. This keeps `reshuffle_each_iteration=False` and gives each
        split its own augmentations. A generator has no graph, so it is seeded when it is built.
        """
        job, found = of.job, self._definition(of)
        if not isinstance(found, SplitGraph):
            return found
        graph = seeds.reseed(found.graph, of.seed, of.epoch, of.split, found.own)
        is_serial = not self._relaxed and determinism.make_repeatable(graph)
        version = [job.entry_point.target, job.entry_point.args_json]
        version += [f"source {job.entry_point.source}"] if job.entry_point.source else []
        version += [str(of.seed), str(of.epoch)] if found.varies else []
        files = SplitCaches(of.split, job.num_splits, version)
        return _SeededGraph(graph, is_serial, found.element_spec, files, functions=found.functions)

    def _definition(self, of: _Opening) -> SplitGraph | Iterable[Any]:
        """Return the graph of an entry point's split, or what the entry point returned."""
        for run in ("", of.job.run):
            cached = self._graphs.get(_graph_key(of.job, of.seed, of.split, run))
            if cached is not None and packing.has_files(cached.graph, self._folder):
                return cached
        return self._define(of)

    def _define(self, of: _Opening) -> SplitGraph | Iterable[Any]:
        """Call the entry point. Return its graph, or what it returned if that has no graph."""
        job, split = of.job, of.split
        context = entry_points.split_context(job, of.seed, of.epoch, split, job.num_splits)
        dataset = entry_points.call(job.entry_point, context, mix(of.seed))
        if not isinstance(dataset, tf.data.Dataset):
            return dataset
        try:
            with self._serializing:
                definition = canonical.serialize(dataset)
        except DatasetFnError as error:
            _log.debug("dataset has no graph", cause=str(error))
            return self._without_graph(job, context)
        same = of.seed == job.seed and not context.varies
        definitions.check(job, split, definition if same else None)
        definitions.check_order(job, definition)
        return self._keep(job, of.seed, split, SplitDefinition(dataset, definition, context.varies))

    def keep(self, job: types_pb2.Job, split: int, found: SplitDefinition) -> None:
        """Keep what describing a job has built, so that `open` need not build it again.

        Except for Python functions: what they do may have changed since an earlier run.
        """
        if not found.varies and not node_defs.uses_python(found.graph):
            self._keep(job, job.seed, split, found)

    def _keep(
        self, job: types_pb2.Job, seed: int, split: int, found: SplitDefinition
    ) -> SplitGraph:
        dataset, definition, varies = found
        own = selections.find(definition, job.num_splits, split, job.shards_by_split)
        determinism.force_determinism(definition)
        size = definition.ByteSize()
        if not varies:
            is_shared = functools.partial(self._is_shared, split)
            definition = packing.store_arrays(definition, is_shared, self._folder)
        functions: Sequence[Any] = ()
        if node_defs.uses_python(definition):
            functions = determinism.functions_of(dataset)
        else:
            size = definition.ByteSize()
        made = SplitGraph(definition, dataset.element_spec, functions, own, varies)
        if not varies and size <= _MAX_GRAPH_BYTES:
            # The graph does not show what Python functions do, so it is not for another run.
            run = job.run if functions else ""
            self._graphs.put(_graph_key(job, seed, split, run), made, size)
        return made

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
        if not self._relaxed and determinism.depend_on_order(dataset):
            return determinism.run_serially(dataset)
        return dataset


def _with_files(
    of: _Opening, found: _SeededGraph, prefix: BoundaryFiles | None
) -> tuple[GraphDef, StateIdentity]:
    """Return a graph that uses the files of its caches and its boundary, and its identity."""
    graph, job = found.graph, of.job
    values = job.row_spec, of.seed, of.epoch, of.split
    identity = identify(graph, *values, batched=job.batched)
    caches.rename(graph, found.files.path)
    if prefix is None:
        return graph, identity
    graph = boundaries.replace(pushdown.push(graph), prefix.path)
    return graph, identify(graph, *values, batched=job.batched)


def _digest(graph_def: GraphDef) -> bytes:
    data = node_defs.to_bytes(packing.without_arrays(graph_def))
    return hashlib.blake2b(data, digest_size=16).digest()


def _graph_key(job: types_pb2.Job, seed: int, split: int, run: str) -> bytes:
    """Return all values that the graph of a split depends on. `run`: "" for all runs."""
    named = types_pb2.Job()
    named.CopyFrom(job)
    set_run(named, types_pb2.Job(run=run))
    for field in ("name", "warnings"):
        named.ClearField(field)
    return named.SerializeToString(deterministic=True) + b"/%d/%d" % (seed, split)
