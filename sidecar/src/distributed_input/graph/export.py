"""Export a trainer's dataset, or a dataset_fn, as a job that workers can run."""

from __future__ import annotations

import warnings as python_warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.graph import buffers, determinism, sharding, user_code
from distributed_input.graph.analysis.batches import (
    disable_drop_remainder,
    remove_padding,
    with_unknown_batch_size,
)
from distributed_input.graph.analysis.graph_analysis import GraphAnalysis, analyze
from distributed_input.graph.definition import caches, node_defs, packing
from distributed_input.graph.definition.canonical import serialize
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.graph.random import selecting, selections
from distributed_input.graph.random.seeds import reseed
from distributed_input.graph.type_specs import check_spec, from_tf
from distributed_input.graph.user_code import SplitInputContext
from distributed_input.order import identity, jobs
from distributed_input.order.jobs import DatasetFacts
from distributed_input.rows.elements import ElementSpec


def export_job(draft: types_pb2.Job, dataset: Any) -> tuple[types_pb2.Job, bytes]:
    """Return a trainer's dataset as a job, and as the bytes that workers need.

    A tf.data.Dataset is split by the auto-shard policy in its options. A dataset_fn is called once
    for every split. The job has no id of its dataset yet. The same program always returns the same
    bytes.

    Raises:
      ConfigError: the dataset calls Python, its policy cannot be applied, or it caches to files in
        a function.
      DatasetFnError: dataset_fn failed, or its datasets cannot be sent.
      SpecError: a component cannot be sent, or differs between splits; the message names it.
    """
    export = _export_plain if isinstance(dataset, tf.data.Dataset) else _export_function
    job, packed = export(draft, dataset)
    for warning in job.warnings:
        python_warnings.warn(warning, stacklevel=4)
    return job, node_defs.to_bytes(packed)


def split_graph(
    dataset: types_pb2.GraphDataset,
    num_splits: int,
    split: int,
    seed: int,
    epoch: int,
    relaxed: bool = False,
    shards_by_split: Sequence[bool] = (),
) -> tuple[GraphDef, bool]:
    """Return the graph of one split of one epoch, on a worker.

    `packing.restore` adds the large constants, which the graph lacks. Also return whether it has to
    run serially. With `relaxed`, random values may differ when the split runs again.
    """
    graph_def = packing.load_bare(dataset, split)
    graph_def = sharding.shard(graph_def, dataset.shard_policy, num_splits, split)
    own = selections.find(graph_def, num_splits, split, shards_by_split)
    graph_def = reseed(graph_def, seed, epoch, split, own)
    determinism.force_determinism(graph_def)
    return graph_def, not relaxed and determinism.make_repeatable(graph_def)


def _export_function(
    draft: types_pb2.Job, dataset_fn: Callable[..., Any]
) -> tuple[types_pb2.Job, types_pb2.GraphDataset]:
    """Call dataset_fn for the first split, which determines their number, and for the others."""

    def trace(num_splits: int, split: int) -> tuple[GraphDef, tf.data.Dataset, SplitInputContext]:
        context = SplitInputContext(num_splits, split, partitions_of, draft.seed)
        dataset = user_code.call_dataset_fn(dataset_fn, context)
        return serialize(dataset), dataset, context

    def partitions_of(global_batch_size: int) -> int:
        return jobs.partitions_of_draft(draft, global_batch_size)

    guess = jobs.splits_of_draft(draft, jobs.partitions_of_draft(draft))
    first, dataset, context = trace(guess, 0)
    element = from_tf(dataset.element_spec)
    analysis = analyze_dataset(first, dataset)
    _reject_python(analysis)
    caches.check(first)
    job, disabled = _complete(
        draft,
        first,
        analysis,
        element,
        asked_batch=context.global_batch_size,
        files=sharding.count_before(first, analysis.file_shards),
        rows=count_rows(dataset, analysis, guess),
        traced=True,
        warnings=serial_warnings(first, dataset),
    )
    parts = [first] if job.num_splits == guess else []
    for split in range(len(parts), job.num_splits):
        part, other, _ = trace(job.num_splits, split)
        check_spec(other.element_spec, element, split)
        if disabled:
            disable_drop_remainder(part)
        parts.append(part)
    if len(parts) > 1 and all(part == parts[0] for part in parts[1:]):
        job.warnings.append(repeated_rows_warning("dataset_fn", len(parts)))
    elif len(parts) > 1:
        ends = {0: parts[0], len(parts) - 1: parts[-1]}
        names = [selecting.file_names(part) for part in parts]
        job.shards_by_split.extend(selecting.shards_by_split(ends, len(parts), names))
        if alike := selections.warning(ends, job.shards_by_split):
            job.warnings.append(alike)
    if any(map(selections.has_random_order, parts)):
        job.order_version = identity.ORDER_VERSION
    job.split_bytes, job.split_bytes_at_most = buffers.held_bytes(parts[0])
    return job, packing.pack(parts)


def _export_plain(
    draft: types_pb2.Job, dataset: tf.data.Dataset
) -> tuple[types_pb2.Job, types_pb2.GraphDataset]:
    element = from_tf(dataset.element_spec)
    prepared = sharding.prepare(dataset, lambda rows: jobs.partitions_of_draft(draft, rows))
    # Its own shard ops do not make its splits.
    analysis = replace(analyze_dataset(prepared.graph_def, dataset), record_shard="")
    _reject_python(analysis)
    caches.check(prepared.graph_def)
    if analysis.batches.size and remove_padding(prepared.graph_def):
        if analysis.drop_remainder and draft.remainder == types_pb2.KEEP:
            draft.remainder = types_pb2.DROP
        rows = replace(analysis.batches, batched=False)
        analysis = replace(analysis, batches=rows, drop_remainder=False)
        element = element.unbatched()
    job, _ = _complete(
        draft,
        prepared.graph_def,
        analysis,
        element,
        plain=True,
        policy=prepared.policy,
        files=prepared.files,
        warnings=(*prepared.warnings, *serial_warnings(prepared.graph_def, dataset)),
    )
    if selections.has_random_order(prepared.graph_def):
        job.order_version = identity.ORDER_VERSION
    splits = job.num_splits
    ends = {
        split: sharding.shard(prepared.graph_def, prepared.policy, splits, split)
        for split in (0, splits - 1)
    }
    job.shards_by_split.extend(selecting.shards_by_split(ends, splits))
    job.split_bytes, job.split_bytes_at_most = buffers.held_bytes(prepared.graph_def)
    if prepared.policy == "DATA" and job.num_splits > 1:
        job.warnings.append(
            f"DATA sharding: each of the {job.num_splits} splits reads and computes the whole"
            f" dataset to keep 1/{job.num_splits} of it. Splits on one worker share a pass if they"
            " only batch elements of one size. To read each element once, use a dataset_fn that"
            " selects files or elements by its input context first"
        )
    if prepared.policy == "FILE" and job.infinite:
        job.warnings.append(
            f"the dataset repeats without end: each of the {job.partitions} partitions repeats its"
            " own files, so rows of a partition with fewer rows come more often. Remove repeat(),"
            " and iterate over epochs"
        )
    return job, packing.pack([prepared.graph_def], prepared.policy)


def _complete(
    draft: types_pb2.Job,
    graph_def: GraphDef,
    analysis: GraphAnalysis,
    element: ElementSpec,
    **facts: Any,
) -> tuple[types_pb2.Job, bool]:
    """Return the job, and whether drop_remainder was disabled in the graph for it."""
    job = jobs.complete(draft, facts_of(analysis, element, **facts))
    is_dealt = job.shard_policy in ("DATA", "OFF")  # the batches are those of TensorFlow
    may_disable = analysis.drop_remainder and job.batched
    disabled = bool(may_disable and disable_drop_remainder(graph_def, in_repeats=not is_dealt))
    if disabled:
        infinite, record_shard = analysis.infinite, analysis.record_shard
        analysis = replace(analyze(graph_def), infinite=infinite, record_shard=record_shard)
        job = jobs.complete(draft, facts_of(analysis, with_unknown_batch_size(element), **facts))
        if job.remainder == types_pb2.KEEP:
            job.remainder = types_pb2.DROP
    if facts.get("plain"):
        are_full = is_dealt and analysis.drop_remainder
        loses_rows = analysis.drop_remainder and not is_dealt
        analysis = replace(analysis, drop_remainder=loses_rows)
        repeated = analysis.batches.repeated
        if repeated and job.batched and not are_full:
            job.warnings.append(
                f"{repeated} follows a batch: tf.data ends each pass with a smaller batch, here"
                " only the last batch of an epoch is smaller. Repeat before batch"
            )
    job.warnings.extend(warnings_of(analysis, job.num_splits))
    job.warnings.extend(hidden_batch_warnings(analysis, job, facts.get("asked_batch")))
    return job, disabled


def facts_of(analysis: GraphAnalysis, element: ElementSpec, **others: Any) -> DatasetFacts:
    """Return the facts of a dataset by the analysis of its graph."""
    return DatasetFacts(
        element=element,
        batched=analysis.batches.batched,
        static_batch=analysis.batches.size,
        paddings=analysis.paddings,
        infinite=analysis.infinite,
        whole=bool(analysis.record_shard),
        **others,
    )


def _reject_python(facts: GraphAnalysis) -> None:
    if facts.python_ops:
        raise ConfigError(
            "the dataset calls Python (" + ", ".join(facts.python_ops) + "), which cannot leave"
            " this process: use TensorFlow ops, or move the dataset to an entry point"
            " (package.module:function) in the workers' image"
        )


def analyze_dataset(graph_def: GraphDef, dataset: tf.data.Dataset) -> GraphAnalysis:
    """Return the analysis of a dataset. One that repeats no elements ends."""
    analysis = analyze(graph_def)
    return replace(analysis, infinite=None) if int(dataset.cardinality()) == 0 else analysis


def count_rows(dataset: tf.data.Dataset, facts: GraphAnalysis, num_splits: int) -> int | None:
    """Return about how many rows all splits have together.

    None if that is unknown, or if each split also reads the rows of the others: more splits would
    then read more. `dataset` is the first of the splits, and `facts` are those of its graph.
    """
    elements = int(dataset.cardinality())
    if elements < 0 or not facts.shards_source:
        return None
    return elements * num_splits * (facts.batches.size or 1)


def serial_warnings(graph_def: GraphDef, dataset: tf.data.Dataset) -> list[str]:
    """Return a warning if a dataset has to run serially, with the ops and the user's lines."""
    found = determinism.serial_ops(graph_def)
    if not found:
        return []
    lines = determinism.lines_of(dataset)
    ops = ", ".join(
        f"{it.op} in {it.function}" + (f" ({lines[it.op]})" if it.op in lines else "")
        for it in found
    )
    return [
        f"num_parallel_calls has no effect in functions that keep a state ({ops}): the rows would"
        " depend on the order in which calls run. Remove the state, or set determinism: Relaxed"
    ]


def repeated_rows_warning(name: str, num_splits: int) -> str:
    """Return the warning for a function that returns the same dataset for each split."""
    return (
        f"{name} returns the same dataset for split 0 and split {num_splits - 1}, so each row is"
        f" read {num_splits} times, once by each split: shard it, for example with dataset.shard("
        "context.num_input_pipelines, context.input_pipeline_id)"
    )


def unread_split_warning(name: str, num_splits: int) -> str:
    """Return the warning for a function whose result cannot depend on the split."""
    return (
        f"{name} does not read the split from its context, so each row is read {num_splits} times,"
        " once by each split, unless each element is random. Return the rows of split"
        " context.input_pipeline_id of context.num_input_pipelines, or"
        " distributed_input.Indexed(dataset) for a dataset with a length and an index"
    )


def hidden_batch_warnings(
    facts: GraphAnalysis, job: types_pb2.Job, asked_batch: int | None
) -> list[str]:
    """Return a warning if the user may regard elements as batches, which count as rows here.

    `asked_batch` is the argument of `get_per_replica_batch_size`, if it was called.
    """
    if asked_batch or not (job.global_batch_size and facts.batches.hidden_by):
        return []
    return [
        f"each element is one of the {job.global_batch_size} rows of a step, because"
        f" {facts.batches.hidden_by} follows the batch, or has it in its function, and may return"
        " something else than batches. If the elements are batches of rows, let dataset_fn call"
        " context.get_per_replica_batch_size(rows), or batch behind that op"
    ]


def warnings_of(facts: GraphAnalysis, num_splits: int) -> list[str]:
    """Return warnings for the user about a dataset that runs as `num_splits` splits."""
    out = []
    if facts.drop_remainder:
        out.append(
            "a batch in the dataset has drop_remainder=True: it loses rows at the end of every"
            " split; batch with drop_remainder=False and set remainder: Drop"
        )
    if facts.record_shard:
        out.append(
            "the dataset shards records after they were read or computed: its read amplification"
            f" is up to {num_splits}, because each of the {num_splits} splits needs all records."
            " Splits on one worker share a pass if they only batch the records. Shard the list of"
            " files, or the source, before records are read or computed"
        )
    if facts.useless_cache:
        out.append(
            "cache() in memory keeps rows while one epoch of a split is read, so every epoch"
            " computes them again; use cache(filename) with a folder of the workers (each split"
            " gets files of its own), or remove it"
        )
    return out
