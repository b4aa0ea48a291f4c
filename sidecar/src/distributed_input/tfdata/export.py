"""From a trainer's dataset, or a function that makes one, to a job that workers can run."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.assignment import jobs
from distributed_input.assignment.jobs import DatasetFacts
from distributed_input.rows.elements import ElementSpec
from distributed_input.tfdata import ordering, sharding, tracing
from distributed_input.tfdata.context import Context
from distributed_input.tfdata.facts import GraphFacts, analyse
from distributed_input.tfdata.graph import blob
from distributed_input.tfdata.graph import graph as graphs
from distributed_input.tfdata.graph.canonical import serialize
from distributed_input.tfdata.graph.graph import GraphDef
from distributed_input.tfdata.random.seeds import reseed
from distributed_input.tfdata.remainder import keep_remainder, of_any_size
from distributed_input.tfdata.spec import from_tf, to_tf


def export_job(draft: types_pb2.Job, dataset: Any) -> tuple[types_pb2.Job, bytes]:
    """A trainer's dataset as a job and the bytes that workers need.

    Args:
      draft: what the resource says.
      dataset: a tf.data.Dataset, to be split by the auto-shard policy in its options; or a
        dataset_fn, which is called once for every split.

    Returns:
      The job, complete but for its dataset's id; the serialized GraphDataset, the same bytes
      whenever the same program makes it.

    Raises:
      ConfigError: the dataset calls Python, or its policy cannot be applied.
      DatasetFnError: dataset_fn failed, or gave datasets that cannot be sent or do not match.
      SpecError: a component cannot be sent; names it.
    """
    export = _export_plain if isinstance(dataset, tf.data.Dataset) else _export_function
    job, packed = export(draft, dataset)
    for warning in job.warnings:
        python_warnings.warn(warning, stacklevel=4)
    return job, graphs.to_bytes(packed)


def open_split(
    dataset: types_pb2.GraphDataset,
    element_spec: ElementSpec,
    num_splits: int,
    split: int,
    seed: int,
    epoch: int,
    folder: Path | None = None,
) -> tf.data.Dataset:
    """The worker's side: one split of one epoch as a dataset of its own.

    Args:
      dataset: as exported.
      element_spec: of the dataset's elements (not of a row of them).
      num_splits: of the job.
      split: which one.
      seed: of the job.
      epoch: from 0.
      folder: see `blob.restore`.
    """
    graph_def = blob.load_bare(dataset, split)
    graph_def = sharding.shard(graph_def, dataset.shard_policy, num_splits, split)
    graph_def = reseed(graph_def, seed, epoch, split)
    ordering.keep_order(graph_def)
    blob.restore(graph_def, dataset, folder)
    return graphs.instantiate(graph_def, to_tf(element_spec))


def _export_function(
    draft: types_pb2.Job, dataset_fn: Callable[..., Any]
) -> tuple[types_pb2.Job, types_pb2.GraphDataset]:
    """Calls dataset_fn for the first split, to learn how many there are, and for the others."""

    def make(num_splits: int, split: int) -> tuple[GraphDef, Any, Context]:
        context = Context(num_splits, split, partitions_of, draft.seed)
        dataset = tracing.call(dataset_fn, context)
        return serialize(dataset), dataset.element_spec, context

    def partitions_of(global_batch_size: int) -> int:
        return jobs.partitions_of_draft(draft, global_batch_size)

    guess = jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    first, first_spec, context = make(guess, 0)
    element = from_tf(first_spec)
    told = analyse(first)
    _refuse_python(told)
    job, kept = _complete(draft, first, told, element, asked_batch=context.global_batch_size)
    parts = [first] if job.num_splits == guess else []
    for split in range(len(parts), job.num_splits):
        part, part_spec, _ = make(job.num_splits, split)
        _check_spec(element, from_tf(part_spec), split)
        if kept:
            keep_remainder(part)
        parts.append(part)
    return job, blob.pack(parts)


def _export_plain(
    draft: types_pb2.Job, dataset: tf.data.Dataset
) -> tuple[types_pb2.Job, types_pb2.GraphDataset]:
    element = from_tf(dataset.element_spec)
    prepared = sharding.prepare(dataset, lambda rows: jobs.partitions_of_draft(draft, rows))
    told = analyse(prepared.graph_def)
    _refuse_python(told)
    job, _ = _complete(
        draft,
        prepared.graph_def,
        told,
        element,
        plain=True,
        policy=prepared.policy,
        files=prepared.files,
        warnings=prepared.warnings,
    )
    if prepared.policy == "DATA" and job.num_splits > 1:
        job.warnings.append(
            f"DATA sharding: each of the {job.num_splits} splits reads and computes the whole"
            f" dataset to keep 1/{job.num_splits} of it; read files and shard by FILE, or pass a"
            " dataset_fn"
        )
    return job, blob.pack([prepared.graph_def], prepared.policy)


def _complete(
    draft: types_pb2.Job, graph_def: GraphDef, told: GraphFacts, element: ElementSpec, **facts: Any
) -> tuple[types_pb2.Job, bool]:
    """The job; and whether a drop_remainder was taken out of the graph for it."""

    def complete(told: GraphFacts, element: ElementSpec) -> types_pb2.Job:
        return jobs.complete(
            draft,
            DatasetFacts(
                element=element,
                batched=told.batched,
                static_batch=told.batch_size,
                infinite=told.infinite,
                **facts,
            ),
        )

    job = complete(told, element)
    kept = bool(told.drop_remainder and job.batched and keep_remainder(graph_def))
    if kept:
        told = analyse(graph_def)
        job = complete(told, of_any_size(element))
        if job.remainder == types_pb2.KEEP:
            job.remainder = types_pb2.DROP
    job.warnings.extend(warnings_of(told, job.num_splits))
    return job, kept


def _check_spec(expected: ElementSpec, found: ElementSpec, split: int) -> None:
    if found == expected:
        return
    if found.structure != expected.structure or len(found.leaves) != len(expected.leaves):
        raise DatasetFnError(
            f"dataset_fn gives elements {to_tf(found)} for split {split}, and {to_tf(expected)} for"
            " split 0: they must be the same"
        )
    pairs = zip(expected.leaves, found.leaves, strict=True)
    first, mine = next(pair for pair in pairs if pair[0] != pair[1])
    raise DatasetFnError(
        f"dataset_fn gives {mine.label} as {mine.kind} {mine.dtype} of shape {mine.shape} for"
        f" split {split}, and as {first.kind} {first.dtype} of shape {first.shape} for split 0:"
        " they must be the same"
    )


def _refuse_python(facts: GraphFacts) -> None:
    if facts.python_ops:
        raise ConfigError(
            "the dataset calls Python (" + ", ".join(facts.python_ops) + "), which cannot leave"
            " this process: use TensorFlow ops, or move the dataset to an entry point"
            " (package.module:function) in the workers' image"
        )


def warnings_of(facts: GraphFacts, num_splits: int) -> list[str]:
    """What a user should know of a dataset before it runs as `num_splits` splits."""
    out = []
    if facts.drop_remainder:
        out.append(
            "a batch in the dataset has drop_remainder=True: it loses rows at the end of every"
            " split; batch with drop_remainder=False and set remainder: drop"
        )
    if facts.shards_records:
        out.append(
            f"the dataset shards records after reading them: every one of the {num_splits} splits"
            " reads all files; shard the list of files instead"
        )
    if facts.cache_files:
        out.append(
            f"the dataset caches to {', '.join(facts.cache_files)}: all splits would write the same"
            " file; cache in memory, or give each split its own"
        )
    return out
