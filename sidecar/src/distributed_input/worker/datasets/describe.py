"""Description of an entry point's dataset, which completes the draft of a job."""

from __future__ import annotations

import functools

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.assignment import jobs
from distributed_input.assignment.jobs import DatasetFacts
from distributed_input.runtime import logs
from distributed_input.tfdata import export, graph_analysis, sharding, type_specs
from distributed_input.tfdata.graph import caches, canonical, fingerprint
from distributed_input.worker.datasets import cache_files, definitions, entry_points
from distributed_input.worker.datasets.element_specs import infer_spec

_log = logs.get("worker.datasets")


def describe(draft: types_pb2.Job, relaxed: bool = False) -> types_pb2.Job:
    """Complete the draft of an entry point's job. Builds some or all splits of the dataset.

    Args:
        draft: the job as the resource defines it.
        relaxed: the worker does not run datasets serially.

    Raises:
        ConfigError: the entry point does not exist, or its dataset caches to files in a function.
        DatasetFnError: the user's code raised an error.
        SpecError: the elements cannot be sent.
    """
    splits = draft.num_splits or jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    context = entry_points.split_context(draft, draft.seed, 0, 0, splits)
    dataset = entry_points.call(draft.entry_point, context, mix(draft.seed))
    if not isinstance(dataset, tf.data.Dataset):
        described = DatasetFacts(infer_spec(dataset), context.global_batch_size)
        return jobs.complete(draft, described)
    element = type_specs.from_tf(dataset.element_spec)
    try:
        definition = canonical.serialize(dataset)
    except DatasetFnError:  # a generator has no graph: only its spec is known
        cache_files.check_without_graph(dataset)
        return jobs.complete(draft, DatasetFacts(element, context.global_batch_size))
    caches.check(definition)
    graph = graph_analysis.analyze(definition)
    serial = [] if relaxed else export.serial_warnings(definition, dataset)
    described = DatasetFacts(
        element=element,
        asked_batch=context.global_batch_size,
        batched=graph.batched,
        static_batch=graph.batch_size,
        infinite=graph.infinite,
        files=sharding.count_before(definition, graph.file_shards),
        rows=export.count_rows(dataset, graph, splits),
        whole=bool(graph.record_shard),
    )
    job = jobs.complete(draft, described)
    job.warnings.extend([*export.warnings_of(graph, job.num_splits), *serial])
    for warning in job.warnings:
        _log.warning(warning, job=draft.name)
    graph_of = functools.partial(definitions.graph_of, job)
    job.definitions.extend(definitions.define(job.num_splits, graph_of))
    job.definition_version = fingerprint.VERSION
    return job
