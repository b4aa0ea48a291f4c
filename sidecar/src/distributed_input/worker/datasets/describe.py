"""Description of an entry point's dataset, which completes the draft of a job."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.graph import buffers, export, sharding, type_specs, user_code
from distributed_input.graph.definition import caches, canonical
from distributed_input.graph.user_code import SplitInputContext
from distributed_input.order import jobs, mixture_jobs
from distributed_input.order.identity import ORDER_VERSION
from distributed_input.order.indexed import Indexed
from distributed_input.order.jobs import DatasetFacts
from distributed_input.runtime import logs
from distributed_input.worker.datasets import cache_files, definitions, entry_points
from distributed_input.worker.datasets.definitions import SplitDefinition
from distributed_input.worker.states.saved_state import StateTimeoutError, within

_log = logs.get("worker.datasets")
_MEASURE_SECONDS = 5.0
_SLOW_SECONDS = 1.0  # of an entry point that returns a dataset that is read by index
_VALID_SECONDS = 5.0  # jobs that start later describe the dataset again: its files may have changed
_MAX_WAIT_SECONDS = 60.0


def import_module(draft: types_pb2.Job) -> None:
    """Import the entry point of a draft. `describe` does it too, but a report names this step."""
    entry_points.load(draft.entry_point)


def describe(
    draft: types_pb2.Job,
    relaxed: bool = False,
    room: int = 0,
    keep: Callable[[types_pb2.Job, int, SplitDefinition], None] = lambda *_: None,
    clock: Callable[[], float] = time.monotonic,
) -> types_pb2.Job:
    """Complete the draft of an entry point's job. Builds some or all splits of the dataset.

    With `relaxed`, the worker does not run datasets serially. `room` is the memory of a worker for
    the buffers of its open splits; 0: unknown. `keep` is called with the complete job and the
    definition of each split that was built. `clock` returns seconds.

    Raises:
        ConfigError: the entry point does not exist, or its dataset caches to files in a function.
        DatasetFnError: the user's code raised an error.
        SpecError: the elements cannot be sent.
    """
    if draft.sources:
        drafts = (mixture_jobs.source_draft(draft, source) for source in draft.sources)
        return mixture_jobs.combine(draft, [describe(one, relaxed, room, keep) for one in drafts])
    splits = draft.num_splits or jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    context = entry_points.split_context(draft, draft.seed, 0, 0, splits)
    began = clock()
    dataset = entry_points.call(draft.entry_point, context, mix(draft.seed))
    if not isinstance(dataset, tf.data.Dataset):
        return _describe_python(draft, dataset, context, clock() - began)
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
    described = export.facts_of(
        graph,
        element,
        asked_batch=context.global_batch_size,
        files=sharding.count_before(definition, graph.file_shards),
        rows=export.count_rows(dataset, graph, splits),
    )
    job = jobs.complete(draft, described)
    first = SplitDefinition(dataset, definition, context.varies)
    if job.num_splits != splits:
        first = definitions.definition_of(job, 0)
    measure = None if graph.python_ops else _measure
    job.split_bytes, job.split_bytes_at_most = buffers.held_bytes(first.graph, measure)
    job.warnings.extend(jobs.memory_warnings(job, room))
    job.warnings.extend([*export.warnings_of(graph, job.num_splits), *serial])
    job.warnings.extend(export.hidden_batch_warnings(graph, job, context.global_batch_size))
    samples = definitions.define(job, first, has_python=bool(graph.python_ops))
    for warning in job.warnings:
        _log.warning(warning, job=draft.name)
    for split, found in samples.items():
        keep(job, split, found)
    return job


def _describe_python(
    draft: types_pb2.Job,
    dataset: Iterable[Any] | Indexed,
    context: SplitInputContext,
    seconds: float,
) -> types_pb2.Job:
    """Complete the draft of a dataset that is no tf.data.Dataset. `seconds`: to make it."""
    function, asked = entry_points.load(draft.entry_point), context.global_batch_size
    name = f"entry point {draft.entry_point.target}"
    if not isinstance(dataset, Indexed):
        with user_code.user_errors(name, exits=True):
            element = type_specs.spec_of_iterable(dataset, function)
        infinite = False if _has_length(dataset) else None
        job = jobs.complete(draft, DatasetFacts(element, asked, infinite=infinite))
        # A generator may read the split later.
        if infinite is False and job.num_splits > 1 and not context.knows_split:
            job.warnings.append(export.unread_split_warning(name, job.num_splits))
        return job
    with user_code.user_errors(name, exits=True):
        rows = len(dataset)
        first = (dataset.source[index] for index in range(min(rows, 1)))
        element = type_specs.spec_of_iterable(first, function)
    entry_points.check_whole(draft.entry_point, context, dataset)
    job = jobs.complete(draft, DatasetFacts(element, asked, infinite=False, rows=rows))
    job.indexed_rows = rows
    job.order_version = ORDER_VERSION if dataset.shuffle else 0
    if seconds > _SLOW_SECONDS:
        job.warnings.append(
            f"{name} took {seconds:.1f} s, and is called for each split. Move what it loads to a"
            " function with functools.cache, which each worker calls once"
        )
    return job


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


class DescribeCache:
    """Completed jobs, by their drafts without the name. Thread-safe.

    Describing a dataset takes some tenths of a second, which would delay the first rows of every
    job that starts at the same time. `describe` completes a draft for a consumer. Its errors are
    raised and not cached.
    """

    def __init__(
        self,
        describe: Callable[[types_pb2.Job, str], types_pb2.Job],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._describe = describe
        self._clock = clock
        self._jobs: dict[bytes, tuple[float, types_pb2.Job]] = {}
        self._lock = threading.Lock()

    def job(self, draft: types_pb2.Job, consumer: str = "") -> types_pb2.Job:
        """Return the completed draft. Drafts that differ only in their name are described once.

        `consumer` is the incarnation of the consumer that requests it.

        Raises:
            UnavailableError: a description takes longer than a minute.
        """
        nameless = types_pb2.Job()
        nameless.CopyFrom(draft)
        nameless.ClearField("name")
        key = nameless.SerializeToString(deterministic=True)
        job = types_pb2.Job()
        # Held while describing, so that concurrent callers share the result.
        if not self._lock.acquire(timeout=_MAX_WAIT_SECONDS):
            raise UnavailableError(
                f"the worker has been describing a dataset for {_MAX_WAIT_SECONDS:.0f} s. Check "
                "what the dataset reads, for example a file system that does not respond."
            )
        try:
            now = self._clock()
            self._jobs = {
                key: one for key, one in self._jobs.items() if now <= one[0] + _VALID_SECONDS
            }
            if key not in self._jobs:
                described = self._describe(draft, consumer)
                self._jobs[key] = self._clock(), described
            job.CopyFrom(self._jobs[key][1])
        finally:
            self._lock.release()
        job.name = draft.name
        return job
