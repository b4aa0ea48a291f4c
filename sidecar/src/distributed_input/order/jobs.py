"""Names of jobs, and the fields of a job that depend on its dataset. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.api.environment import JOB_ENV
from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from distributed_input.order.splits import default_partitions
from distributed_input.rows.elements import ElementSpec

SPLITS_PER_PARTITION = 4
"""More splits replay fewer rows when a worker ends. Each split costs a start."""
MOST_SPLITS = 512
"""Maximum of the default number of splits, unless there are many partitions."""
_ROWS_PER_SPLIT = 1024
_BYTES_PER_SPLIT = 256 << 20
_FILES_PER_SPLIT = 4
"""A large dataset has more splits, so that many workers can compute at the same time. With this
size, the start of a split is short compared with its rows. Nothing is measured for it: a job that
is restored on another machine needs the same number."""
MOST_TRACED = 128
"""Maximum of the default number if the trainer traces each split, which takes tens of milliseconds
each."""
_WHOLE_PARTITIONS = 8
"""Partitions of a job without a batch size. It supports 1, 2, 4 and 8 trainers."""

# The fields that `complete`, the definitions and the dispatcher set.
_COMPLETED = (
    "partitions num_splits global_batch_size infinite batched row_spec element_spec warnings"
    " definitions definition_version read_amplification split_bytes"
    " shard_policy split_bytes_at_most order_version run first_run shards_by_split"
    " indexed_rows sources varies"
).split()

COPY = re.compile(r"(?:^|[./])copy-[1-9][0-9]*$")
"""The end of the name of a job that reads the same rows as the one without it."""
_JOB_NAME = re.compile(r"[A-Za-z0-9]([-_.A-Za-z0-9]{0,61}[A-Za-z0-9])?")


def check_name(job: str) -> str:
    """Return `job` if it is a valid name. The empty name selects the input's own job.

    Law: every accepted name is a valid value of a Kubernetes label.

    Raises:
        ConfigError: the name is invalid.
    """
    if COPY.search(job):
        raise ConfigError(
            f"job {job!r}: names that end with copy-N are those of trainers that share a data "
            f"rank. Change connect(job=...) or {JOB_ENV}"
        )
    if job and not _JOB_NAME.fullmatch(job):
        raise ConfigError(
            f"job {job!r}: a job's name has 1 to 63 letters, digits, '-', '_' and '.', and starts "
            f"and ends with a letter or digit. Change connect(job=...) or {JOB_ENV}"
        )
    return job


def full_name(input_name: str, job: str) -> str:
    """Return the name of a job in messages. Law: `input_of(full_name(name, job)) == name`."""
    return f"{input_name}/{job}" if job else input_name


def input_of(full: str) -> str:
    """Return the input in a job's full name. Input names contain no slash."""
    return full.partition("/")[0]


@dataclass(frozen=True)
class DatasetFacts:
    """What running a dataset's definition determines.

    Attributes:
        element: spec of its elements.
        asked_batch: G, if dataset_fn called `get_per_replica_batch_size(G)`.
        batched: its elements are batches of rows.
        static_batch: rows per batch, if all batches have the same size.
        paddings: values that fill up the components of rows in a step, if they may be shorter than
            others; () or None: rows of one step must have one shape.
        infinite: its splits never end; None: that is unknown.
        plain: it is a tf.data.Dataset rather than a function, and is sharded by `policy`.
        policy: FILE, DATA or OFF; "" for functions.
        files: number of files that splits select from, if known.
        rows: number of its rows or elements, if known and if a split does not read the others'.
        traced: the trainer traces each split before the first row.
        whole: every split reads or computes the records of all splits.
        warnings: messages for the user.
    """

    element: ElementSpec
    asked_batch: int | None = None
    batched: bool = False
    static_batch: int | None = None
    paddings: Sequence[Any] = ()
    infinite: bool | None = False
    plain: bool = False
    policy: str = ""
    files: int | None = None
    rows: int | None = None
    whole: bool = False
    traced: bool = False
    warnings: Sequence[str] = ()

    @property
    def row_bytes(self) -> int:
        """Return the size of the components of a row that have a fixed size."""
        row = self.element.unbatched() if self.batched else self.element
        return sum(column.row_bytes or 0 for column in row.columns)


def partitions_of_draft(draft: types_pb2.Job, asked_batch: int | None = None) -> int:
    """Return P: the draft's value, or the default for the global batch size.

    Law: a default P divides the global batch size.
    """
    if draft.partitions:
        return draft.partitions
    rows = draft.global_batch_size or asked_batch
    return default_partitions(rows) if rows else _WHOLE_PARTITIONS


def splits_of_draft(
    draft: types_pb2.Job, partitions: int, facts: DatasetFacts | None = None
) -> int:
    """Return the number of splits: the draft's value, or a default for the dataset.

    A split of an infinite dataset never ends, so each partition has one: others would never be
    read. So has a dataset that may be infinite. If every split reads the whole dataset, there is
    also one split per partition. With OFF, there is one.

    Law: the result is at least 1. A default is at most SPLITS_PER_PARTITION per partition or
    MOST_SPLITS, whichever is greater. It depends only on the dataset's definition.
    """
    if facts is not None and facts.policy == "OFF":
        return 1
    if draft.num_splits:
        return draft.num_splits
    if facts is not None and _has_whole_partitions(facts):
        return partitions
    least = SPLITS_PER_PARTITION * partitions
    if facts is None:
        return least
    most = MOST_TRACED if facts.traced else MOST_SPLITS
    splits = max(least, min(most, _large(facts)) // partitions * partitions)
    return min(splits, facts.files) if facts.files else splits


def _has_whole_partitions(facts: DatasetFacts) -> bool:
    return facts.infinite is not False or facts.whole or facts.policy == "DATA"


def _large(facts: DatasetFacts) -> int:
    """Return the number of splits of a good size."""
    if facts.rows is None:
        return (facts.files or 0) // _FILES_PER_SPLIT
    rows = min(_ROWS_PER_SPLIT, _BYTES_PER_SPLIT // max(1, facts.row_bytes))
    return facts.rows // max(1, rows)


def set_run(job: types_pb2.Job, run_of: types_pb2.Job) -> None:
    """Give a job the run of another message of it, in place."""
    job.run, job.first_run = run_of.run, run_of.first_run


def is_same(one: types_pb2.Job, other: types_pb2.Job) -> bool:
    """Return whether two messages are of the same job, in whichever runs."""
    copy = types_pb2.Job()
    copy.CopyFrom(one)
    set_run(copy, other)
    return copy == other


def is_completed(draft: types_pb2.Job, job: types_pb2.Job) -> bool:
    """Return whether `job` may be the completion of an entry point's draft.

    Law: it is for every completion of the draft.
    """
    for name in ("partitions", "num_splits", "global_batch_size"):
        if getattr(draft, name) not in (0, getattr(job, name)):
            return False
    sources = [[(one.dataset_id, one.bad_records) for one in each.sources] for each in (draft, job)]
    if sources[0] != sources[1]:
        return False
    given, completed = types_pb2.Job(), types_pb2.Job()
    given.CopyFrom(draft)
    completed.CopyFrom(job)
    if not job.global_batch_size:
        given.remainder = types_pb2.KEEP
    for one in (given, completed):
        for name in _COMPLETED:
            one.ClearField(name)
    return given == completed


def complete(draft: types_pb2.Job, facts: DatasetFacts) -> types_pb2.Job:
    """Return the job with all fields that depend on the dataset.

    Law: completing a complete job with the same facts changes nothing.

    Raises:
        ConfigError: dataset_fn and the resource have different batch sizes.
        SpecError: a component has no leading dimension, so it cannot be batched.
    """
    job = types_pb2.Job()
    job.CopyFrom(draft)
    asked, given = facts.asked_batch, draft.global_batch_size
    if asked and given and asked != given:
        raise ConfigError(
            f"spec.batching.globalBatchSize is {given}, but dataset_fn uses a global batch of "
            f"{asked} rows (get_per_replica_batch_size): make them equal, or remove one"
        )
    job.global_batch_size = given or asked or (facts.static_batch if facts.plain else 0) or 0
    job.partitions = partitions_of_draft(job)
    job.num_splits = splits_of_draft(draft, job.partitions, facts)
    _check_endless(job, facts)
    whole = facts.whole or facts.policy == "DATA"
    job.read_amplification = job.num_splits if whole else 0
    job.shard_policy = facts.policy
    job.infinite = bool(facts.infinite)
    job.batched = bool(job.global_batch_size and (asked or facts.batched))
    if facts.policy == "OFF":
        # As in tf.data, every trainer reads the whole dataset.
        job.mode = types_pb2.PARALLEL_EPOCHS
    if not job.global_batch_size:
        job.remainder = types_pb2.KEEP
    row = facts.element.unbatched() if job.batched else facts.element
    job.row_spec = row.padded_with(facts.paddings).to_json()
    job.element_spec = facts.element.to_json()
    del job.warnings[:]
    job.warnings.extend(facts.warnings)
    if facts.files is not None and facts.files < job.partitions and not facts.plain:
        job.warnings.append(
            f"the dataset has {facts.files} files for {job.partitions} partitions: "
            f"{job.partitions - facts.files} of them get no rows. Write more files"
        )
    if facts.infinite is None and job.num_splits > job.partitions:
        job.warnings.append(
            "it is not known whether the dataset's splits end, for example because Python computes "
            "them. If they never end, only the first split of each partition is read: "
            f"{job.num_splits - job.partitions} of {job.num_splits} are not. Then remove "
            "spec.numSplits. If they end, return an iterable with a length"
        )
    return job


def _check_endless(job: types_pb2.Job, facts: DatasetFacts) -> None:
    """Raise ConfigError if a partition has splits behind one that never ends."""
    if facts.infinite and job.num_splits > job.partitions:
        raise ConfigError(
            f"spec.numSplits: {job.num_splits} splits for {job.partitions} partitions, but the "
            f"dataset never ends: only the first {job.partitions} splits would be read. Remove it, "
            f"set it to {job.partitions}, or remove repeat() from the dataset"
        )


def memory_warnings(job: types_pb2.Job, room: int) -> list[str]:
    """Return a warning if one worker has no memory for one open split of each partition.

    Args:
        job: the job, complete.
        room: memory of a worker for the buffers of its open splits; 0: unknown.
    """
    splits = min(job.partitions, job.num_splits)
    if not room or splits * job.split_bytes <= room:
        return []
    held, has = (-(-size // (1 << 20)) for size in (job.split_bytes, room))
    few = "even one" if job.split_bytes > room else f"all {splits}"
    return [
        f"shuffle buffers of an open split hold about {held:,} MiB, and a worker has {has:,} MiB "
        f"for them: not enough for {few} that are read at the same time. Lower the buffer size of "
        "shuffle, raise the memory limit in spec.workers.template, or use more workers"
    ]
