"""The rows of a step and the step of a row, from a saved position and the lengths of splits. Pure.

A position has all that the order depends on: seed, splits, partitions and batch size. It also has
how steps were cut since its base, and one border of a split in each partition. A split is needed
only if a row lies between two borders that are not known. Then `UnknownLengthError` names it.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity, mixed_rows, splits
from distributed_input.order.share import Share, seed_of, share_of
from distributed_input.order.split_borders import RowRange as RowRange
from distributed_input.order.split_borders import SplitBorders
from distributed_input.order.split_borders import UnknownLengthError as UnknownLengthError


def job_of(position: trainer_pb2.Position) -> types_pb2.Job:
    """Return a job with the fields of a position's job that the order of rows depends on.

    Raises:
        PositionError: the position has no job or no batch size, or it is damaged.
    """
    job = types_pb2.Job(
        name=position.job,
        seed=position.seed,
        mode=position.mode,
        num_splits=position.num_splits,
        partitions=position.partitions,
        global_batch_size=position.global_batch_size,
    )
    identity.check_format(position)
    if not job.partitions or not job.num_splits:
        raise PositionError("the position was saved before the input was read: it has no steps")
    if not job.global_batch_size:
        raise PositionError(
            "the job has no batch size, so that a batch of the loop is less than a step: connect "
            "with lineage=True, and read lineage() while the loop runs"
        )
    if position.sources:
        mixed_rows.add_sources(job, position)
    identity.check_form(position, job)
    return job


def _mixed(position: trainer_pb2.Position, job: types_pb2.Job) -> mixed_rows.MixedEpoch:
    return mixed_rows.mixed_epoch(
        position.SerializeToString(deterministic=True), job.SerializeToString(deterministic=True)
    )


def rows_of_step(
    position: trainer_pb2.Position,
    step: int,
    lengths: Mapping[int, int],
    remainder: types_pb2.Remainder,
    consumer: int | None = None,
) -> list[RowRange]:
    """Return the rows of a step of the position's epoch, in the order of delivery.

    Law: `consumer=None` gives the rows of all consumers, one after the other, for each step since
    the position's base.

    Args:
        position: a saved position. The step may be before or behind it.
        step: index of the step in the epoch, from 0.
        lengths: rows of splits, by split, as far as they are known.
        remainder: what the job does with the rows that do not fill the last step. No position
            has it.
        consumer: index of a trainer, or None: all. In PARALLEL_EPOCHS that of the position.

    Returns:
        The rows; none behind the end of the epoch. Rows that fill up a batch are not included.

    Raises:
        UnknownLengthError: the answer needs the length of a split that `lengths` does not have.
        PositionError: the position does not show the step.
    """
    job = job_of(position)
    if step < 0:
        raise PositionError(f"step {step}: steps count from 0")
    if job.sources:
        return _mixed(position, job).rows_of_step(step, lengths, consumer)
    is_before = step < position.base_step
    if job.mode == types_pb2.PARALLEL_EPOCHS:
        if consumer not in (None, position.consumer):
            raise PositionError(
                f"the checkpoint of trainer {position.consumer} does not show the rows of trainer "
                f"{consumer}: in ParallelEpochs each trainer has its own order"
            )
        shares = [share_of(job, position.consumer, position.consumers)]
    elif is_before:
        shares = [_share_before(position, job, step, consumer)]
    else:
        shares = [share_of(job, one, position.consumers) for one in range(position.consumers)]
    asked = [one for one in shares if consumer in (None, one.consumer)]
    if not asked:
        raise PositionError(f"trainer {consumer}: there were {position.consumers} trainers, from 0")
    if is_before or not position.base_rows:
        before, steps = [0] * job.partitions, step - (0 if is_before else position.base_step)
    else:
        before, steps = list(position.base_rows), step - position.base_step
    seed = seed_of(job, shares[0].consumer)
    deal = splits.deal(seed, position.epoch, job.num_splits, job.partitions)
    epoch = _Epoch(position, deal, before, lengths)
    if remainder == types_pb2.DROP and any(epoch.count(one, steps) < one.batch for one in shares):
        return []  # all trainers end the epoch here
    return [rows for one in asked for rows in epoch.rows(one, steps)]


def step_of_row(
    position: trainer_pb2.Position,
    split: int,
    row: int,
    lengths: Mapping[int, int],
    remainder: types_pb2.Remainder,
) -> int | None:
    """Return the step of the position's epoch that has a row; None: it is delivered in none.

    Law: `rows_of_step` has the row in this step, and in no other one.

    Args:
        position: a saved position. The step may be before or behind it.
        split: the row's split, which exists.
        row: its index in the split.
        lengths: the number of rows of every split.
        remainder: what the job does with the rows that do not fill the last step.

    Raises:
        PositionError: the position does not show the step, or the splits have other lengths.
    """
    job = job_of(position)
    if job.sources:
        step_found = _mixed(position, job).step_of(split, row, lengths)
        found = step_found is not None and rows_of_step(position, step_found, lengths, remainder)
        return step_found if found else None
    deal = splits.deal(
        seed_of(job, position.consumer), position.epoch, job.num_splits, job.partitions
    )
    partition = next(p for p, dealt in enumerate(deal) if split in dealt)
    dealt = deal[partition]
    at = row + sum(lengths[one] for one in dealt[: dealt.index(split)])
    base = list(position.base_rows) or [0] * job.partitions
    if at < base[partition]:
        quota = share_of(job, 0, 1).quota
        _share_before(position, job, at // quota, None)
        step = at // quota
    else:
        # In PARALLEL_EPOCHS, all consumers have equal shares.
        share = share_of(job, partition % position.consumers, position.consumers)
        totals = {p: sum(lengths[one] for one in deal[p]) for p in share.partitions}
        own = {p: base[p] for p in share.partitions}
        step = position.base_step + bisect.bisect_right(
            range(sum(totals.values()) // share.batch + 1),
            at,
            key=lambda steps: splits.consumed_rows(
                own, totals, steps + 1, share.batch, share.quota
            )[partition],
        )
    return step if rows_of_step(position, step, lengths, remainder) else None


def splits_of(
    position: trainer_pb2.Position, lengths: Mapping[int, int]
) -> Sequence[Iterator[int]]:
    """Return the splits whose rows steps of the position's epoch may have, as independent lists.

    Those of a mixture that repeats are the ones that the steps before the position have.

    Args:
        position: a saved position.
        lengths: the number of rows of each split that a list yielded before its last one.

    Raises:
        PositionError: see `job_of`.
    """
    job = job_of(position)
    if job.sources:
        return _mixed(position, job).splits(lengths)
    return [iter([split]) for split in range(job.num_splits)]


def _share_before(
    position: trainer_pb2.Position, job: types_pb2.Job, step: int, consumer: int | None
) -> Share:
    """Return a share of all partitions, for a step before the position's base.

    While no partition has ended, a step has the same rows for every number of trainers.

    Raises:
        PositionError: the number of trainers matters, and it is not known.
    """
    share = share_of(job, 0, 1)
    is_even = set(position.base_rows) == {position.base_step * share.quota}
    if consumer is None and is_even:
        return share
    raise PositionError(
        f"step {step} is before a restore at step {position.base_step}, and the checkpoint does "
        "not show how many trainers there were before. "
        + (
            "Ask for the rows of all trainers, or use a checkpoint from before the restore"
            if is_even
            else "Use a checkpoint from before the restore"
        )
    )


@dataclass(frozen=True)
class _Epoch:
    """What is known of an epoch.

    Attributes:
        position: where the borders of splits come from.
        deal: the splits of each partition, in order.
        before: rows of each partition that were consumed when the steps to count begin.
        lengths: rows of splits, by split, as far as they are known.
    """

    position: trainer_pb2.Position
    deal: Sequence[Sequence[int]]
    before: Sequence[int]
    lengths: Mapping[int, int]

    def rows(self, share: Share, steps: int) -> list[RowRange]:
        """Return the rows of one consumer in its next step after `steps` steps.

        A partition of unknown length is assumed to be endless. A partition that has not ended gives
        rows to each step. So a wrong assumption shows: a row of this partition is not found.
        """
        partitions = {
            p: SplitBorders(self.position, p, self.deal[p], self.lengths) for p in share.partitions
        }
        totals = {p: one.total for p, one in partitions.items()}
        consumed = splits.consumed_rows(
            {p: self.before[p] for p in share.partitions}, totals, steps, share.batch, share.quota
        )
        takes = splits.batch_takes(consumed, totals, share.batch, share.quota)
        return [one for p, first, rows in takes for one in partitions[p].locate(first, rows)]

    def count(self, share: Share, steps: int) -> int:
        """Return the number of rows of one consumer in its next step after `steps` steps."""
        return sum(one.rows for one in self.rows(share, steps))
