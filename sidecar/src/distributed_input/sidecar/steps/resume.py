"""The rows at which partitions are opened for a saved position.

A position has the step and the lengths of splits that were known when it was saved. The rows that a
consumer took of each partition follow from the step. Near the end of an epoch they also depend on
the lengths of the partitions. A partition of unknown length is assumed to be endless. When it turns
out to be shorter, the rows are computed again. No row is delivered before all assumptions have been
checked.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import identity
from distributed_input.order import splits as assignment
from distributed_input.order.repeated_splits import SPLIT_MASK
from distributed_input.order.share import Share, share_of
from distributed_input.rows.prefix import Prefix
from distributed_input.sidecar.steps import mixed_steps
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline
from distributed_input.sidecar.streams.partition_reader import PartitionPosition

Position = trainer_pb2.Position


def check_position(position: Position, job: types_pb2.Job, share: Share) -> None:
    """Check that this consumer of this job can resume at a position.

    Raises:
        PositionError: it cannot. The message has the difference and what to do.
    """
    identity.check(position, job)
    identity.check_form(position, job)
    alone = position.consumers == share.consumers and position.consumer == share.consumer
    restores = (
        f"the checkpoint of consumer {position.consumer} of {position.consumers} restores only "
        f"that consumer, not consumer {share.consumer} of {share.consumers}"
    )
    if job.mode == types_pb2.PARALLEL_EPOCHS and not alone:
        raise PositionError(
            f"in ParallelEpochs {restores}: each consumer has its own epoch. Run as many trainers "
            "as before, each with its own checkpoint"
        )
    if position.extra_units and not share.whole:
        _check_begun_step(position, share)


def _check_begun_step(position: Position, share: Share) -> None:
    """Raise PositionError if the units of a step already begun differ from this consumer's."""
    if not has_same_cut(position, share):
        raise PositionError(
            "the checkpoint was saved within a batch, after the parts of some replicas. Trainers "
            f"then: {position.consumers} with {position.units_per_step} replicas, now: "
            f"{share.consumers} with {share.units}. Run as many as then, or restore a checkpoint "
            "saved after a batch"
        )


def has_same_cut(position: Position, share: Share) -> bool:
    """Return whether steps are cut into units as they were when the position was saved.

    Then the epoch can resume within a step. The answer is the same for all consumers, because they
    all cut a step in the same way.
    """
    if position.consumers != share.consumers or not position.extra_units or share.whole:
        return position.consumers == share.consumers
    return position.units_per_step == share.units and position.extra_units < share.units


def open_at(reader: EpochReader, share: Share, position: Position) -> list[int]:
    """Open the share's partitions at the rows that a position has reached.

    Returns:
        The rows of each partition consumed at the position's step, from which this pass counts. The
        other consumers confirm their rows through the facts.

    Raises:
        PositionError: the position belongs to another job.
        UnavailableError: workers or the other consumers did not answer in time.
    """
    job = reader.source.job
    check_position(position, job, share)
    if job.sources:
        consumed = mixed_steps.rows_of(position, job)
        for one in share.partitions:
            start = start_of(position, one, consumed[one], reader.plan.deal[one])
            reader.open(one, start)
        mixed_steps.check_rows(reader, consumed)
        return consumed
    totals = known_totals(position)
    while True:
        rows: dict[int, int] = {}
        for group in _groups(position, job, share):
            rows |= rows_at(position, job, share, group, totals)
        for p in share.partitions:
            opened = reader.partitions.get(p)
            if opened is None or (opened.rows != rows[p] and not opened.ended):
                reader.open(p, start_of(position, p, rows[p], reader.plan.deal[p]))
        shorter = _shorter_than_assumed(reader, rows, totals)
        if not shorter:
            break
        totals |= shorter
    return [rows[p] for p in range(job.partitions)]


def _groups(position: Position, job: types_pb2.Job, share: Share) -> list[tuple[int, ...]]:
    """Return the groups of partitions that one consumer read together.

    When one partition of a group has too few rows for a step, the others of the group give more.
    """
    if job.mode == types_pb2.PARALLEL_EPOCHS:
        return [share.partitions]
    return [
        tuple(assignment.partitions_of(owner, position.consumers, job.partitions))
        for owner in range(position.consumers)
    ]


def _shorter_than_assumed(
    reader: EpochReader, rows: Mapping[int, int], totals: Mapping[int, int | None]
) -> dict[int, int | None]:
    """Return the totals of the partitions that have fewer rows than were assumed consumed."""
    shorter: dict[int, int | None] = {}
    for p in reader.partitions:
        total = reader.locate(p)
        if total is not None and total < rows[p]:
            shorter[p] = total
    if len(reader.partitions) < len(rows):
        # The other consumers wait for our facts, even if we need none of theirs.
        reader.source.exchange.request_heartbeat()
    for p, assumed in rows.items():
        if p not in reader.partitions and totals.get(p) is None:
            total = _await_total_below(reader, p, assumed)
            if total is not None:
                shorter[p] = total
    return shorter


def _await_total_below(reader: EpochReader, partition: int, rows: int) -> int | None:
    """Wait for facts about another consumer's partition.

    Returns:
        The total of the partition if it is below `rows`, else None.
    """
    deadline = ProgressDeadline(reader.source.timeout_seconds)
    while True:
        known = reader.source.facts.of(reader.plan.epoch, partition)
        if known.rows_seen >= rows:
            return None
        if known.ended:
            return known.rows_seen
        deadline.observe((known.rows_seen, known.replayed))
        reader.wait_facts(f"the other trainers' positions in partition {partition}", deadline)


def rows_at(
    position: Position,
    job: types_pb2.Job,
    share: Share,
    group: tuple[int, ...],
    totals: Mapping[int, int | None],
) -> dict[int, int]:
    """Return the rows of each partition of `group` consumed at `position`.

    If steps are cut as before, the units of a step already begun are not counted here. They are
    skipped when the step is delivered again.

    Args:
        position: where to resume.
        job: the job.
        share: share of this consumer.
        group: partitions that one consumer read together.
        totals: known totals of partitions; the others are assumed to be endless.
    """
    before = position.base_rows or [0] * job.partitions
    old = share_of(job, group[0] % position.consumers, position.consumers)
    return assignment.consumed_rows(
        {p: before[p] for p in group},
        totals,
        position.step - position.base_step,
        old.batch,
        old.quota,
        0 if has_same_cut(position, share) else position.extra_units,  # whole elements
    )


def start_of(
    position: Position, partition: int, rows: int, splits: Sequence[int]
) -> PartitionPosition:
    """Return how to open a partition of which `rows` rows are consumed.

    Args:
        position: where to resume.
        partition: index of the partition.
        rows: rows of the partition consumed.
        splits: ids of the partition's splits, in order.
    """
    anchor = position.anchors[partition] if position.anchors else trainer_pb2.Anchor()
    if anchor.rows > rows:  # the saving consumer had too few facts: read from the beginning
        anchor = trainer_pb2.Anchor()
    known = None
    for prefix in position.prefixes:
        if (
            prefix.partition == partition
            and anchor.ordinal < len(splits)
            and prefix.split == splits[anchor.ordinal] & SPLIT_MASK
            and prefix.rows <= rows - anchor.rows
        ):
            known = Prefix(prefix.rows, prefix.digest, _anchor_of(prefix))
    return PartitionPosition(anchor.ordinal, anchor.rows, rows, known)


def _anchor_of(prefix: trainer_pb2.Prefix) -> Prefix | None:
    """Return the rows that a worker may skip; None if the position has none."""
    if not 0 < prefix.anchor_rows < prefix.rows:
        return None
    return Prefix(prefix.anchor_rows, prefix.anchor_digest)


def known_totals(position: Position) -> dict[int, int | None]:
    """Return the totals of the partitions that had ended when the position was saved."""
    return {p: anchor.rows for p, anchor in enumerate(position.anchors) if anchor.ended}
