"""The identity of the dataset that a position belongs to. Pure.

A position is valid only for the job whose rows it counts. A saved position therefore contains the
dataset, its definition, and everything else that the order of rows depends on.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import mixture
from distributed_input.order.jobs import input_of

FORMAT = 1
"""Version of saved positions."""
ORDER_VERSION = 1
"""Version of the seeds of random ops that order rows. 0: the dataset has no such ops."""
_EXHAUSTIONS = {types_pb2.REPEAT: "Repeat", types_pb2.STOP: "Stop", types_pb2.DROP_SOURCE: "Drop"}
_MAX_UNITS = 1 << 16  # in a step of rows; the time to resume grows with the units of a begun step


def fingerprint(job: types_pb2.Job) -> int:
    """Return the fingerprint of a job's definitions, not 0; 0 if it has none.

    That of a dataset that is read by index is its number of rows.
    """
    if not job.definitions:
        return job.indexed_rows
    data = b"".join(value.to_bytes(8, "little") for value in job.definitions)
    return int.from_bytes(hashlib.blake2b(data, digest_size=8).digest(), "little") | 1


def exclusions(job: types_pb2.Job) -> int:
    """Return the fingerprint of the records that a job excludes, not 0; 0 if there are none."""
    lists = [
        sorted(record.SerializeToString(deterministic=True) for record in one.bad_records.excluded)
        for one in (job.sources or [job])
    ]
    if not any(lists):
        return 0
    digest = hashlib.blake2b(repr(lists).encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") | 1


def describe_dataset(job: types_pb2.Job) -> str:
    """Return the entry point of a job, its arguments and packing; "" for a dataset of the trainer.

    The folder of the code is not included: it differs between a laptop and a cluster.
    """
    if not job.HasField("entry_point"):
        return ""
    entry, packing = job.entry_point, job.entry_point.packing
    packed = f" packed by {packing.method} into {packing.length}" if packing.length else ""
    packed += f", {packing.open_sequences} at the same time" if packed else ""
    packed += f", balanced over {packing.balance_window}" if packing.balance_window else ""
    return f"{entry.target} {entry.args_json or '{}'}{packed}"


def stamp(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Add the identity of the job's dataset to a position, in place, unless it has one."""
    if not position.format:
        position.format = FORMAT
        position.num_splits = job.num_splits
        position.mode = job.mode
        position.sources.extend(_sources(job))
        position.exhaustion = job.exhaustion
        accept_dataset(position, job)


def accept_dataset(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Replace the dataset of a position by that of the job, in place.

    The number of splits and the other values that the order depends on stay.
    """
    position.dataset = describe_dataset(job)
    position.definition = fingerprint(job)
    position.definition_version = job.definition_version
    position.order_version = job.order_version
    position.excluded = exclusions(job)


def check(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Check that a position belongs to a job.

    Law: a position that was stamped with the job is valid.

    Raises:
        PositionError: it does not. The message has both values and the remedy.
    """
    check_format(position)
    modes = {number: name.lower() for name, number in types_pb2.ProcessingMode.items()}
    fields = [
        ("name", input_of(position.job), input_of(job.name)),  # of any job of the input
        ("spec.partitions", position.partitions, job.partitions),
        ("spec.seed", position.seed, job.seed),
        ("spec.batching.globalBatchSize", position.global_batch_size, job.global_batch_size),
        ("spec.numSplits", position.num_splits, job.num_splits),
        (
            "spec.processingMode",
            modes.get(position.mode, f"unknown ({position.mode})"),
            modes[job.mode],
        ),
        ("spec.mixture.weights of", _shown(position.sources), _shown(_sources(job))),
        (
            "spec.mixture.onExhausted",
            _EXHAUSTIONS.get(position.exhaustion, f"unknown ({position.exhaustion})"),
            _EXHAUSTIONS[job.exhaustion],
        ),
    ]
    for field, saved, now in fields:
        if saved != now:
            raise PositionError(
                f"the checkpoint was saved with {field} = {saved!r}, the job now has {now!r}: "
                "the order of rows depends on it. Restore the value, or start without the "
                "checkpoint"
            )
    _check_order(position, job)
    _check_dataset(position, job)
    _check_excluded(position, job)


def _sources(job: types_pb2.Job) -> list[trainer_pb2.Source]:
    """Return the sources of a mixture, as a position has them."""
    return [
        trainer_pb2.Source(name=one.entry_point.source, num_splits=one.num_splits)
        for one in job.sources
    ]


def _shown(sources: Iterable[trainer_pb2.Source]) -> list[str]:
    return [f"{one.name} ({one.num_splits} splits)" for one in sources]


def check_format(position: trainer_pb2.Position) -> None:
    """Raise PositionError if a position has the format of another version."""
    if position.format != FORMAT:
        raise PositionError(
            f"the checkpoint has a position of format {position.format}, and this version of "
            f"distributed-input reads format {FORMAT}: use the version that saved it"
        )


def check_form(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Raise PositionError if a position of this job has numbers that no position has."""
    trainers = position.consumers
    is_shared = job.mode != types_pb2.PARALLEL_EPOCHS
    own = job.partitions
    if is_shared and trainers:
        own = len(range(position.consumer, job.partitions, trainers))
    fits = (
        trainers > position.consumer
        and (trainers <= job.partitions or not is_shared)
        and max(position.base_step, position.trainers_since) <= position.step
        and position.extra_units < (_MAX_UNITS if job.global_batch_size else max(1, own))
        and len(position.base_rows) in (0, mixture.lists_of(job))
        and len(position.anchors) in (0, mixture.lists_of(job))
        and mixture.is_log(position.weights, len(job.sources), position.base_step)
    )
    if not fits:
        raise PositionError(
            "the checkpoint's position is damaged: its numbers do not fit its job. Restore an "
            "earlier checkpoint, or start without one"
        )


def _check_order(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Raise PositionError if random ops have other seeds now."""
    if position.order_version != job.order_version:
        raise PositionError(
            f"the checkpoint was saved with version {position.order_version} of the order of rows, "
            f"the job now has version {job.order_version} (0: without random operations). {_REMEDY}"
        )


def _check_dataset(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    dataset = describe_dataset(job)
    if position.dataset and position.dataset != dataset:
        raise PositionError(
            f"the checkpoint was saved with the dataset {position.dataset}, the job now has "
            f"{dataset or 'a dataset of the trainer'}. {_REMEDY}"
        )
    definition = fingerprint(job)
    comparable = position.definition_version == job.definition_version
    if position.definition and definition and comparable and position.definition != definition:
        raise PositionError(
            f"the dataset has changed since the checkpoint was saved: its definition was "
            f"{position.definition:016x} and is now {definition:016x}. The definition is the graph "
            "of every split, with its list of files, or the number of rows that are read by index. "
            f"{_REMEDY}"
        )


def _check_excluded(position: trainer_pb2.Position, job: types_pb2.Job) -> None:
    """Raise PositionError if splits that were read to a position have other rows now."""
    is_within_epoch = not position.end and (position.step or position.extra_units)
    if is_within_epoch and position.excluded != exclusions(job):
        raise PositionError(
            "spec.badRecords.exclude has changed since the checkpoint was saved within an epoch, "
            "so the rows before it are others now. Restore the list, or a checkpoint of the end of "
            f"an epoch. {_ACCEPT}"
        )


_ACCEPT = (
    "To continue at the same step of the changed dataset, which may repeat or skip rows: "
    "connect(..., accept_changed_dataset=True)"
)
_REMEDY = f"Restore the dataset, or start without the checkpoint. {_ACCEPT}"
