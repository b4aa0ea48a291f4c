"""The job of a mixture, from the jobs of its sources. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api.errors import ConfigError, SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.order.identity import fingerprint


def source_draft(draft: types_pb2.Job, source: types_pb2.Job) -> types_pb2.Job:
    """Return the draft of a source's job: that of a job with its splits and without a mixture."""
    own = types_pb2.Job()
    own.CopyFrom(draft)
    for name in ("sources", "weights", "exhaustion"):
        own.ClearField(name)
    own.entry_point.CopyFrom(source.entry_point)
    own.dataset_id = source.dataset_id
    own.bad_records.CopyFrom(source.bad_records)
    return own


def combine(draft: types_pb2.Job, sources: Sequence[types_pb2.Job]) -> types_pb2.Job:
    """Return the job of a mixture, complete.

    Args:
        draft: its draft.
        sources: the completed drafts of its sources.

    Raises:
        ConfigError: the rows of a step are not known, or a source has too few splits.
        SpecError: the rows of two sources differ in form.
    """
    job, first = types_pb2.Job(), sources[0]
    job.CopyFrom(draft)
    del job.sources[:]
    for one in sources:
        _check(one, first)
        job.sources.append(one)
        job.warnings.extend(f"source {one.entry_point.source}: {text}" for text in one.warnings)
        del job.sources[-1].warnings[:]
        job.sources[-1].ClearField("name")  # jobs are described once, whatever their names
    for name in ("partitions", "global_batch_size", "batched", "row_spec", "element_spec"):
        setattr(job, name, getattr(first, name))
    for name in ("order_version", "split_bytes", "split_bytes_at_most", "read_amplification"):
        setattr(job, name, max(getattr(one, name) for one in sources))
    job.num_splits = sum(one.num_splits for one in sources)
    ends = all if job.exhaustion == types_pb2.STOP else any
    job.infinite = job.exhaustion == types_pb2.REPEAT or ends(one.infinite for one in sources)
    prints = [fingerprint(one) for one in sources]
    job.definitions.extend(prints if any(prints) else [])
    job.definition_version = max(one.definition_version for one in sources)
    return job


def _check(source: types_pb2.Job, first: types_pb2.Job) -> None:
    """Raise an error unless a source has the form of the first one, and enough splits."""
    name, other = (one.entry_point.source for one in (source, first))
    if not source.global_batch_size:
        raise ConfigError(
            "spec.batching.globalBatchSize: a mixture needs the number of rows of a step. Set it, "
            "or call context.get_per_replica_batch_size in the dataset function"
        )
    if source.global_batch_size != first.global_batch_size:
        raise ConfigError(
            f"spec.mixture.weights: source {name} has a global batch of {source.global_batch_size} "
            f"rows, and source {other} one of {first.global_batch_size}: use one size"
        )
    if source.row_spec != first.row_spec:
        raise SpecError(
            f"spec.mixture.weights: a row of source {name} is {source.row_spec}, and one of source "
            f"{other} is {first.row_spec}: return the same components, types and shapes for all "
            "sources"
        )
    if source.num_splits < source.partitions:
        raise ConfigError(
            f"spec.partitions: source {name} has {source.num_splits} splits for {source.partitions}"
            " partitions, and each partition needs one. Write more files, raise spec.numSplits, or "
            "lower spec.partitions"
        )
