"""From a job's dataset to the elements of one of its splits in one epoch.

A source is an iterator of elements with its spec. Whatever the definition (a graph from the
trainer, a tf.data function, any Python iterable), the same (seed, epoch, split) makes the same
elements: order is seeded by seed and epoch alone, the same for every split.
"""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sys
import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.assignment import jobs
from distributed_input.assignment.jobs import DatasetFacts
from distributed_input.rows.elements import ElementSpec
from distributed_input.runtime import logs
from distributed_input.tfdata import (
    batching,
    determinism,
    export,
    graph_analysis,
    type_specs,
    user_code,
)
from distributed_input.tfdata.graph import canonical, serialization
from distributed_input.tfdata.input_context import SplitInputContext
from distributed_input.tfdata.random import seeds
from distributed_input.worker.datasets import iterables
from distributed_input.worker.datasets.graph_cache import Definition, Definitions

_log = logs.get("worker.sources")
_CACHE_BYTES = 1 << 30  # of graphs kept for later splits
_SEED_MASK = (1 << 31) - 1

# dataset_fn sees the process's one global seed, so only one is built at a time.
_building = threading.Lock()


@dataclass(frozen=True)
class Source:
    """Elements of one split, and what they look like."""

    elements: Iterator[Any]
    row: ElementSpec
    batched: bool  # the elements are batches of rows


class Sources:
    """Builds sources; keeps graphs that it fetched.

    Args:
        fetch: gets a serialized GraphDataset by its id.
    """

    def __init__(self, fetch: Callable[[str], bytes]) -> None:
        self._fetch = fetch
        self._definitions = Definitions()
        self._graphs: OrderedDict[str, types_pb2.GraphDataset] = OrderedDict()
        self._lock = threading.Lock()

    def open(
        self, job: types_pb2.Job, seed: int, epoch: int, split: int, batch_rows: int
    ) -> Source:
        """The elements of a split.

        Args:
            job: complete.
            seed: of the epochs' order.
            epoch: which.
            split: of it.
            batch_rows: come as one element, or more where the dataset's own batches are larger;
                0: leave the elements as they are. See `Pace`.

        Raises:
            ConfigError: the entry point does not exist.
            DatasetFnError: the user's code raised.
            SpecError: the split's elements are not those of the job.
        """
        row = ElementSpec.from_json(job.row_spec)
        element = ElementSpec.from_json(job.element_spec)
        if not job.HasField("entry_point"):
            kept = self._graph(job.dataset_id)
            dataset = export.open_split(kept, element, job.num_splits, split, seed, epoch)
            return _of_dataset(dataset, row, job.batched, batch_rows)
        made = _epoch_of(job, seed, epoch, split, self._definitions)
        if not isinstance(made, tf.data.Dataset):
            return Source(iter(made), row, job.batched)
        check_spec(made, element, split)
        return _of_dataset(made, row, job.batched, batch_rows)

    def _graph(self, dataset_id: str) -> types_pb2.GraphDataset:
        with self._lock:
            known = self._graphs.get(dataset_id)
            if known is not None:
                self._graphs.move_to_end(dataset_id)
                return known
        fetched = types_pb2.GraphDataset.FromString(self._fetch(dataset_id))
        _check_version(fetched)
        with self._lock:
            self._graphs[dataset_id] = fetched
            while len(self._graphs) > 1 and _total(self._graphs.values()) > _CACHE_BYTES:
                self._graphs.popitem(last=False)
        return fetched


def _total(graphs: Iterable[types_pb2.GraphDataset]) -> int:
    return sum(kept.ByteSize() for kept in graphs)


def _of_dataset(dataset: tf.data.Dataset, row: ElementSpec, batched: bool, rows: int) -> Source:
    options = tf.data.Options()
    options.deterministic = True  # a replay must make the same rows
    if rows:
        dataset = batching.batch_rows(dataset, row, batched, rows)
    # The next element is made while this one is sent.
    dataset = dataset.prefetch(1).with_options(options)
    return Source(iter(dataset), row, batched or bool(rows))


def _check_version(kept: types_pb2.GraphDataset) -> None:
    """A graph of a newer TensorFlow may hold ops that this one does not know."""
    theirs, ours = (tuple(map(int, v.split(".")[:2])) for v in (kept.tf_version, tf.__version__))
    if theirs > ours:
        raise ConfigError(
            f"the trainer has TensorFlow {kept.tf_version}, this worker {tf.__version__}: give the "
            "workers an image with at least the trainer's version"
        )


def describe(draft: types_pb2.Job) -> types_pb2.Job:
    """A draft of an entry point's job, completed by building its first split.

    Raises:
        ConfigError, DatasetFnError, SpecError: as `Sources.open`.
    """
    splits = draft.num_splits or jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    context = _context(draft, draft.seed, 0, 0, splits)
    made = _call(draft.entry_point, context, mix(draft.seed))
    if not isinstance(made, tf.data.Dataset):
        found = DatasetFacts(iterables.spec_of(made), context.global_batch_size)
        return jobs.complete(draft, found)
    element = type_specs.from_tf(made.element_spec)
    try:
        told = graph_analysis.analyze(canonical.serialize(made))
    except DatasetFnError:  # a generator: only its spec is known
        return jobs.complete(draft, DatasetFacts(element, context.global_batch_size))
    found = DatasetFacts(
        element=element,
        asked_batch=context.global_batch_size,
        batched=told.batched,
        static_batch=told.batch_size,
        infinite=told.infinite,
        warnings=export.warnings_of(told, splits),
    )
    return jobs.complete(draft, found)


def _context(
    job: types_pb2.Job, seed: int, epoch: int, split: int, splits: int
) -> SplitInputContext:
    return SplitInputContext(
        splits,
        split,
        lambda asked: jobs.partitions_of_draft(job, asked),
        seed=mix(seed, epoch) & _SEED_MASK,
        epoch=epoch,
    )


def _epoch_of(
    job: types_pb2.Job, seed: int, epoch: int, split: int, definitions: Definitions
) -> Any:
    """The entry point's dataset for a split, with the epoch's seeds.

    By way of its graph where it has one: that keeps `reshuffle_each_iteration=False` and gives
    splits augmentations of their own. A generator has none: it is seeded as it is built.
    """
    key = definitions.key(job, seed, split)
    known = definitions.get(key)
    if known is None:
        context = _context(job, seed, epoch, split, job.num_splits)
        made = _call(job.entry_point, context, mix(seed))
        if not isinstance(made, tf.data.Dataset):
            return made
        try:
            defined = canonical.serialize(made)
        except DatasetFnError as error:
            _log.debug("dataset has no graph", cause=str(error))
            return _call(job.entry_point, context, context.seed, functions_seeded=True)
        determinism.force_determinism(defined)
        known = Definition(defined, made)
        if not context.varies:
            definitions.keep(key, known)
    again = serialization.instantiate(
        seeds.reseed(known.graph, seed, epoch, split), known.made.element_spec
    )
    # Python functions in the graph live as long as their dataset.
    again._functions_of = known.made  # noqa: SLF001  an attribute of ours
    return again


def _call(
    entry: types_pb2.EntryPoint,
    context: SplitInputContext,
    seed: int,
    functions_seeded: bool = False,
) -> Any:
    """Call the entry point for one split, under seeds that are the same for all splits.

    Args:
        entry: names the function.
        context: its argument; its seed is Python's and numpy's, which no graph carries on.
        seed: TensorFlow's; where `reseed` adds the epoch it must not be in it yet.
        functions_seeded: also inside of the functions that the dataset maps.

    Raises:
        ConfigError: there is no such function.
        DatasetFnError: it raised; the message has its traceback.
        SpecError: it returned no dataset.
    """
    function = _load(entry)
    arguments = json.loads(entry.args_json or "{}")
    hidden = contextlib.nullcontext() if functions_seeded else user_code.functions_unseeded()
    with _building, user_code.fixed_randomness(seed & _SEED_MASK), hidden:
        random.seed(context.seed)
        np.random.seed(context.seed)
        drawn = _drawn()
        context.varies = False  # our own asking aside
        with user_code.user_errors(f"entry point {entry.target}"):
            made = function(context, **arguments)
            if callable(made) and not isinstance(made, tf.data.Dataset):
                made = made()
        context.varies = context.varies or _drawn() != drawn
    if isinstance(made, (tf.data.Dataset, Iterable)):
        return made
    raise SpecError(
        f"entry point {entry.target} returned {type(made).__name__}: return a tf.data.Dataset, or "
        "an iterable of (nested) numpy arrays"
    )


def _drawn() -> tuple[Any, ...]:
    """How far Python's and numpy's generators have come."""
    kind, key, *rest = np.random.get_state(legacy=True)
    return random.getstate(), kind, bytes(np.asarray(key)), *rest


def _load(entry: types_pb2.EntryPoint) -> Callable[..., Any]:
    module_name, _, attribute = entry.target.partition(":")
    if entry.path and entry.path not in sys.path:
        sys.path.insert(0, entry.path)
    try:
        found: Any = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise DatasetFnError(
                f"spec.dataset.entryPoint: module {module_name} imports {error.name}, which the "
                "worker does not have: install it in the worker's image"
            ) from error
        where = entry.path or "the worker's Python path"
        raise ConfigError(
            f"spec.dataset.entryPoint: no module {module_name!r} in {where}: check the name, and "
            "spec.dataset.source"
        ) from error
    except Exception as error:
        with user_code.user_errors(f"module {module_name}"):
            raise error
    for name in attribute.split("."):
        found = getattr(found, name, None)
        if found is None:
            raise ConfigError(
                f"spec.dataset.entryPoint: module {module_name} has no {attribute!r}; it has "
                f"{', '.join(_functions(module_name)) or 'no functions'}"
            )
    if not callable(found):
        raise ConfigError(f"spec.dataset.entryPoint: {entry.target} is no function")
    return found


def _functions(module_name: str) -> list[str]:
    module = sys.modules[module_name]
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module_name
    ][:10]


def check_spec(dataset: tf.data.Dataset, expected: ElementSpec, split: int) -> None:
    """Refuse a split whose elements are of another kind than the first split's.

    Raises:
        SpecError: naming the component.
    """
    found = type_specs.from_tf(dataset.element_spec)
    if found == expected:
        return
    raise SpecError(
        f"the elements of split {split} are not those of the job: "
        f"{_difference(found, expected)}; every split must have the same element_spec"
    )


def _difference(found: ElementSpec, expected: ElementSpec) -> str:
    if found.structure != expected.structure:
        return f"structure {found.structure} instead of {expected.structure}"
    for ours, theirs in zip(found.leaves, expected.leaves, strict=True):
        if ours != theirs:
            return (
                f"{ours.label} is {ours.kind} {ours.dtype} {ours.shape} instead of "
                f"{theirs.kind} {theirs.dtype} {theirs.shape}"
            )
    return "they differ"
