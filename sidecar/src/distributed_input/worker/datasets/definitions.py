"""The definition of a dataset: the graphs of all its splits, as fingerprints.

Each worker calls dataset_fn itself, for each split that it runs. If the function lists a directory
that changes, two workers may cut it into different splits, and rows would be lost or repeated. So
the worker that describes a job computes the fingerprints of all splits. Every worker compares the
graph of each split that it opens with them.

A worker also compares each split with a few others, to find what selects the rows of a split.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

import tensorflow as tf

from distributed_input.api.errors import JobConflictError, SpecError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.graph import export
from distributed_input.graph.definition import canonical
from distributed_input.graph.definition.canonical import fingerprint
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.graph.random import selecting, selections
from distributed_input.order.identity import ORDER_VERSION
from distributed_input.order.indexed import Indexed
from distributed_input.worker.datasets import entry_points


class SplitDefinition(NamedTuple):
    """What dataset_fn returned for a split in the first epoch.

    `graph` is canonical. `varies`: other epochs may have another one.
    """

    dataset: tf.data.Dataset
    graph: GraphDef
    varies: bool


def definition_of(job: types_pb2.Job, split: int) -> SplitDefinition:
    """Return the definition of a split."""
    context = entry_points.split_context(job, job.seed, 0, split, job.num_splits)
    dataset = entry_points.call(job.entry_point, context, mix(job.seed))
    if isinstance(dataset, tf.data.Dataset):
        return SplitDefinition(dataset, canonical.serialize(dataset), context.varies)
    raise SpecError(
        f"entry point {job.entry_point.target} returned {type(dataset).__name__} for split "
        f"{split}, and a tf.data.Dataset for split 0. Return the same type for all splits"
    )


def define(
    job: types_pb2.Job, first: SplitDefinition, has_python: bool
) -> Mapping[int, SplitDefinition]:
    """Add the definition of an entry point's dataset to its job, and warnings.

    The definition has the fingerprints of all splits, or one if they differ only in
    `dataset.shard(n, i)` of split i of n. Graphs of Python functions may be equal although their
    rows are not.

    Args:
        job: the job, else complete.
        first: the definition of split 0.
        has_python: whether the dataset calls Python functions.

    Returns:
        The definitions of some splits.
    """

    def noted(split: int) -> SplitDefinition:
        found = definition_of(job, split) if split else first
        job.varies = job.varies or found.varies
        if selections.has_random_order(found.graph):
            job.order_version = ORDER_VERSION
        return found

    splits, names = job.num_splits, []
    job.definition_version = canonical.FINGERPRINT_VERSION
    samples = {split: noted(split) for split in sorted({0, splits // 2, splits - 1})}
    graphs = {split: one.graph for split, one in samples.items()}
    prints = set(map(fingerprint, graphs.values()))
    if splits == 1:
        job.definitions.extend(prints)
        return samples
    common = {fingerprint(graph, without_shard=(splits, at)) for at, graph in graphs.items()}
    if len(common) == 1:
        job.definitions.extend(common)
    else:
        for split in range(splits):
            graph = graphs.get(split) or noted(split).graph
            job.definitions.append(fingerprint(graph))
            names.append(selecting.file_names(graph))
    job.shards_by_split.extend(selecting.shards_by_split(graphs, splits, names))
    if len(prints) == 1 and not has_python:
        name = f"entry point {job.entry_point.target}"
        job.warnings.append(export.repeated_rows_warning(name, splits))
    elif alike := selections.warning(graphs, job.shards_by_split):
        job.warnings.append(alike)
    return samples


def check_order(job: types_pb2.Job, graph: GraphDef) -> None:
    """Check that a job has the order of rows of this release.

    Raises:
        JobConflictError: another release described it.
    """
    if job.order_version != ORDER_VERSION and selections.has_random_order(graph):
        raise JobConflictError(
            f"the job has version {job.order_version} of the order of rows, and this worker has "
            f"version {ORDER_VERSION}: another release of distributed-input has described it. Use "
            "one release in all processes, stop all trainers of the job and start again"
        )


def check_indexed(job: types_pb2.Job, dataset: object) -> None:
    """Check that a dataset is read by index and has the rows and the order of its job.

    Raises:
        JobConflictError: it does not.
    """
    rows = version = 0
    if isinstance(dataset, Indexed):
        rows, version = len(dataset), ORDER_VERSION if dataset.shuffle else 0
    if not isinstance(dataset, Indexed) or (rows, version) != (job.indexed_rows, job.order_version):
        raise JobConflictError(
            f"{job.entry_point.target} was read by index when the run started, had "
            f"{job.indexed_rows:,} rows and version {job.order_version} of their order (0: not "
            f"shuffled). Now it has {rows:,} rows and version {version}. Its files or its code "
            "differ on this worker. Restore them, or stop all trainers of the job and start again"
        )


def check(job: types_pb2.Job, split: int, graph: GraphDef | None) -> None:
    """Check that a split is defined as it was when the run started.

    `graph` is canonical, of the first epoch, with the job's seed; None: build it.

    Raises:
        JobConflictError: it is not.
    """
    if not job.definitions or job.definition_version != canonical.FINGERPRINT_VERSION:
        return  # the dataset has no graph, or a graph of this version cannot be compared
    common = len(job.definitions) == 1 < job.num_splits
    expected = job.definitions[0 if common else split]
    selecting = (job.num_splits, split) if common else None
    found = fingerprint(graph or definition_of(job, split).graph, without_shard=selecting)
    if found != expected:
        raise JobConflictError(
            f"split {split} of {job.entry_point.target} has changed since the run started: the "
            f"fingerprint of its graph was {expected:016x} and is now {found:016x}. Its list of "
            "files or its code differs on this worker, or dataset_fn has another result in each "
            "process, for example by random numbers without a seed. Restore them, or stop all "
            "trainers of the job and start again, to read the changed dataset. Do not list a "
            "directory that changes during a run"
        )
