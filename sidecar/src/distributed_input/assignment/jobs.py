"""What a job becomes once its dataset is known: sizes, partitions, splits. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.assignment.splits import default_partitions
from distributed_input.rows.elements import ElementSpec

SPLITS_PER_PARTITION = 4  # more splits replay less when a worker dies; each costs a start
_WHOLE_PARTITIONS = 8  # of a job without a batch size: serves 1, 2, 4 and 8 trainers


_JOB_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def check_name(job: str) -> str:
    """`job`, where it can name one of an input's jobs, or is empty: the input's own.

    Raises:
        ConfigError: it is not what a label's value in Kubernetes may be.
    """
    if job and not _JOB_NAME.fullmatch(job):
        raise ConfigError(
            f"job {job!r}: a job's name has 1 to 63 letters, digits, '-', '_' and '.', and begins "
            "and ends with a letter or digit; mend connect(job=...) or DISTRIBUTED_INPUT_JOB"
        )
    return job


def full_name(input_name: str, job: str) -> str:
    """What dispatcher and workers call a job of an input; `job` is empty for the input's own."""
    return f"{input_name}/{job}" if job else input_name


def input_of(full: str) -> str:
    """The input of a job's full name."""
    return full.partition("/")[0]


@dataclass(frozen=True)
class DatasetFacts:
    """What running a dataset's definition tells.

    Attributes:
        element: spec of its elements.
        asked_batch: G, where dataset_fn called `get_per_replica_batch_size(G)`.
        batched: its elements are batches of rows.
        static_batch: of that many rows, where they are all as large.
        infinite: no split of it ends.
        plain: a tf.data.Dataset rather than a function, sharded by `policy`.
        policy: FILE, DATA or OFF; "" for functions.
        files: that FILE sharding deals out, where known.
        warnings: for the user.
    """

    element: ElementSpec
    asked_batch: int | None = None
    batched: bool = False
    static_batch: int | None = None
    infinite: bool = False
    plain: bool = False
    policy: str = ""
    files: int | None = None
    warnings: Sequence[str] = ()


def partitions_of_draft(draft: types_pb2.Job, asked_batch: int | None = None) -> int:
    """P: what the resource says, or what the global batch size makes it."""
    if draft.partitions:
        return draft.partitions
    rows = draft.global_batch_size or asked_batch
    return default_partitions(rows) if rows else _WHOLE_PARTITIONS


def splits_of_draft(
    draft: types_pb2.Job, partitions: int, facts: DatasetFacts | None = None
) -> int:
    """The number of splits: what the resource says, or what suits the dataset.

    A split of an infinite dataset never ends, so a partition has one. A dataset sharded by DATA
    reads everything again for every split, so it gets as few as keep all partitions busy.
    """
    if facts is not None and facts.policy == "OFF":
        return 1
    if draft.num_splits:
        return draft.num_splits
    if facts is not None and (facts.infinite or facts.policy == "DATA"):
        return partitions
    splits = SPLITS_PER_PARTITION * partitions
    if facts is not None and facts.files:
        return max(1, min(splits, facts.files))
    return splits


def complete(draft: types_pb2.Job, facts: DatasetFacts) -> types_pb2.Job:
    """The job, with everything set that depends on the dataset.

    Raises:
        ConfigError: two sources name different batch sizes.
        SpecError: a component has no leading dimension to batch over.
    """
    job = types_pb2.Job()
    job.CopyFrom(draft)
    asked, given = facts.asked_batch, draft.global_batch_size
    if asked and given and asked != given:
        raise ConfigError(
            f"dataset_fn asks for a global batch of {asked} rows "
            f"(get_per_replica_batch_size), spec.batching.globalBatchSize is {given}: make them "
            "equal, or leave one out"
        )
    job.global_batch_size = given or asked or (facts.static_batch if facts.plain else 0) or 0
    job.partitions = partitions_of_draft(job)
    job.num_splits = splits_of_draft(draft, job.partitions, facts)
    job.infinite = facts.infinite
    job.batched = bool(job.global_batch_size and (asked or facts.batched))
    if facts.policy == "OFF":
        # As tf.data has it: every trainer reads everything.
        job.mode = types_pb2.PARALLEL_EPOCHS
    if not job.global_batch_size:
        job.remainder = types_pb2.KEEP
    row = facts.element.unbatched() if job.batched else facts.element
    job.row_spec = row.to_json()
    job.element_spec = facts.element.to_json()
    del job.warnings[:]
    job.warnings.extend(facts.warnings)
    return job
