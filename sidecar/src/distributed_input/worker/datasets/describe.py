"""Description of an entry point's dataset, which completes the draft of a job."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.assignment import identity, jobs
from distributed_input.assignment.jobs import DatasetFacts
from distributed_input.runtime import logs
from distributed_input.tfdata import buffers, export, sharding, type_specs
from distributed_input.tfdata.graph import caches, canonical, fingerprint
from distributed_input.tfdata.graph.node_defs import GraphDef
from distributed_input.tfdata.random import selections
from distributed_input.worker.datasets import cache_files, definitions, entry_points
from distributed_input.worker.states.saved_state import StateTimeoutError, within

_log = logs.get("worker.datasets")
_MEASURE_SECONDS = 5.0


def import_module(draft: types_pb2.Job) -> None:
    """Import the entry point of a draft. `describe` does it too, but a report names this step."""
    entry_points.load(draft.entry_point)


def describe(draft: types_pb2.Job, relaxed: bool = False, room: int = 0) -> types_pb2.Job:
    """Complete the draft of an entry point's job. Builds some or all splits of the dataset.

    Args:
        draft: the job as the resource defines it.
        relaxed: the worker does not run datasets serially.
        room: memory of a worker for the buffers of its open splits; 0: unknown.

    Raises:
        ConfigError: the entry point does not exist, or its dataset caches to files in a function.
        DatasetFnError: the user's code raised an error.
        SpecError: the elements cannot be sent.
    """
    splits = draft.num_splits or jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    context = entry_points.split_context(draft, draft.seed, 0, 0, splits)
    dataset = entry_points.call(draft.entry_point, context, mix(draft.seed))
    if not isinstance(dataset, tf.data.Dataset):
        function = entry_points.load(draft.entry_point)
        element = type_specs.spec_of_iterable(dataset, function)
        asked, infinite = context.global_batch_size, False if _has_length(dataset) else None
        return jobs.complete(draft, DatasetFacts(element, asked, infinite=infinite))
    element = type_specs.from_tf(dataset.element_spec)
    try:
        definition = canonical.serialize(dataset)
    except DatasetFnError:  # a generator has no graph: only its spec is known
        cache_files.check_without_graph(dataset)
        asked, infinite = context.global_batch_size, _never_ends(dataset)
        return jobs.complete(draft, DatasetFacts(element, asked, infinite=infinite))
    caches.check(definition)
    graph = export.analyze_dataset(definition, dataset)
    serial = [] if relaxed else export.serial_warnings(definition, dataset)
    described = DatasetFacts(
        element=element,
        asked_batch=context.global_batch_size,
        batched=graph.batched,
        static_batch=graph.batch_size,
        paddings=graph.paddings,
        infinite=graph.infinite,
        files=sharding.count_before(definition, graph.file_shards),
        rows=export.count_rows(dataset, graph, splits),
        whole=bool(graph.record_shard),
    )
    job = jobs.complete(draft, described)
    graph_of = functools.partial(_graph_of, job)
    first = definition if job.num_splits == splits else graph_of(0)
    job.split_bytes = buffers.held_bytes(first, None if graph.python_ops else _measure)
    job.split_bytes_at_most = buffers.may_hold_less(first)
    job.warnings.extend(jobs.memory_warnings(job, room))
    job.warnings.extend([*export.warnings_of(graph, job.num_splits), *serial])
    job.warnings.extend(export.hidden_batch_warnings(graph, job, context.global_batch_size))
    defined = definitions.define(job.num_splits, graph_of)
    if defined.repeated and not graph.python_ops:  # Python code is not in the graph
        name = f"entry point {draft.entry_point.target}"
        job.warnings.append(export.repeated_rows_warning(name, job.num_splits))
    elif defined.warning:
        job.warnings.append(defined.warning)
    job.shards_by_split.extend(defined.shards_by_split)
    for warning in job.warnings:
        _log.warning(warning, job=draft.name)
    job.definitions.extend(defined.fingerprints)
    job.definition_version = fingerprint.VERSION
    return job


def _graph_of(job: types_pb2.Job, split: int) -> GraphDef:
    """Return the graph of a split. Set the job's version of the order if it has a random order."""
    graph = definitions.graph_of(job, split)
    if selections.has_random_order(graph):
        job.order_version = identity.ORDER_VERSION
    return graph


def _has_length(elements: Iterable[Any]) -> bool:
    """Return whether a Python iterable has a length, so that it ends."""
    try:
        len(elements)  # type: ignore[arg-type]
    except TypeError:  # also of objects whose class has a length
        return False
    return True


def _never_ends(dataset: tf.data.Dataset) -> bool | None:
    """Return whether a dataset without a graph never ends; None if that is unknown."""
    known = int(dataset.cardinality())
    return None if known == tf.data.UNKNOWN_CARDINALITY else known == tf.data.INFINITE_CARDINALITY


def _measure(dataset: tf.data.Dataset) -> int | None:
    """Return the size of the first element of a dataset.

    None if it cannot be read in time, or if it has variants, whose size TensorFlow does not show.
    """
    try:
        first = within(_MEASURE_SECONDS, "read an element", lambda: next(iter(dataset), None))
    except (tf.errors.OpError, StateTimeoutError):
        return None
    parts = tf.nest.flatten(first, expand_composites=True)
    tensors = [part for part in parts if isinstance(part, tf.Tensor)]
    if any(part.dtype in (tf.variant, tf.resource) for part in tensors):
        return None
    return sum(_bytes_of(part.numpy()) for part in tensors)


def _bytes_of(value: Any) -> int:
    if isinstance(value, bytes):
        return len(value)
    if value.dtype == object:
        return sum(map(len, value.reshape(-1).tolist()))
    return int(value.nbytes)
