"""From a saved position to the rows at which each partition is opened.

A position names the step and what was known of split lengths when it was saved. Rows that a
consumer took of each partition follow from the step, except near an epoch's end, where they
depend on how long partitions are: what is not known is assumed endless, tried, and mended
when a split turns out shorter. Nothing is delivered before every assumption has held.
"""

from __future__ import annotations

from collections.abc import Mapping

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.assignment import splits as assignment
from distributed_input.assignment.jobs import input_of
from distributed_input.assignment.share import Share, share_of
from distributed_input.sidecar.steps.progress_deadline import Patience
from distributed_input.sidecar.steps.reading import Reading
from distributed_input.sidecar.streams.partition import Start
from distributed_input.sidecar.streams.streams import Prefix

Position = trainer_pb2.Position


def check(position: Position, job: types_pb2.Job, share: Share) -> None:
    """Refuse a position that this consumer of this job cannot go on from.

    Raises:
        PositionError: naming what differs and what to do.
    """
    for field, saved, now in (
        ("name", input_of(position.job), input_of(job.name)),  # another job's will do
        ("spec.partitions", position.partitions, job.partitions),
        ("spec.seed", position.seed, job.seed),
        ("spec.batching.globalBatchSize", position.global_batch_size, job.global_batch_size),
    ):
        if saved != now:
            raise PositionError(
                f"the checkpoint was saved with {field} = {saved!r}, the job now has {now!r}: "
                "the order of rows depends on it; set it back, or start without the checkpoint"
            )
    alone = position.consumers == share.consumers and position.consumer == share.consumer
    if job.mode == types_pb2.PARALLEL_EPOCHS and not alone:
        raise PositionError(
            f"in parallel_epochs consumer {position.consumer} of {position.consumers}'s checkpoint "
            f"restores only itself, not consumer {share.consumer} of {share.consumers}: each "
            "consumer has an epoch of its own; run as many trainers as before, each with its own"
        )
    if job.order == types_pb2.ANY and position.consumers > 1 and not alone:
        raise PositionError(
            f"with order: any consumer {position.consumer} of {position.consumers}'s checkpoint "
            f"restores only itself, not consumer {share.consumer} of {share.consumers}: save and "
            "restore one checkpoint for each trainer, or set spec.order: strict"
        )


def same_cut(position: Position, share: Share) -> bool:
    """Whether steps are cut into units as they were: then a step goes on within.

    Of any consumer's position: all have cut the step alike, and all must go on alike.
    """
    return position.consumers == share.consumers


def open_at(reading: Reading, share: Share, position: Position) -> tuple[int, list[int]]:
    """Open the share's partitions where a position left them.

    Returns:
        A step, and by partition the rows consumed then: the base from which this pass counts.
        Mostly the position's step, and the other consumers confirm their rows through the facts.
        Where a position tells of its own partitions alone it is the base of that position.

    Raises:
        PositionError: the position belongs to another job.
        UnavailableError: workers or the other consumers did not answer in time.
    """
    job = reading.source.job
    check(position, job, share)
    totals = known_totals(position)
    while True:
        wanted: dict[int, int] = {}
        for group in _groups(position, job, share):
            wanted |= rows_at(position, job, share, group, totals)
        for p in share.partitions:
            reader = reading.readers.get(p)
            if reader is None or (reader.rows != wanted[p] and not reader.ended):
                reading.open(p, start_of(position, p, wanted[p], reading.deal[p]))
        learned = _shorter_than_assumed(reading, wanted, totals)
        if not learned:
            break
        totals |= learned
    if position.own_rows and position.consumers > 1:
        return position.base_step, list(position.base_rows) or [0] * job.partitions
    return position.step, [wanted.get(p, 0) for p in range(job.partitions)]


def _groups(position: Position, job: types_pb2.Job, share: Share) -> list[tuple[int, ...]]:
    """Partitions that were read together: what one had too few rows for, the others gave."""
    if job.mode == types_pb2.PARALLEL_EPOCHS or (position.own_rows and position.consumers > 1):
        return [share.partitions]
    return [
        tuple(assignment.partitions_of(owner, position.consumers, job.partitions))
        for owner in range(position.consumers)
    ]


def _shorter_than_assumed(
    reading: Reading, wanted: Mapping[int, int], totals: Mapping[int, int | None]
) -> dict[int, int | None]:
    """Totals of the partitions that have fewer rows than were assumed consumed."""
    learned: dict[int, int | None] = {}
    for p in reading.readers:
        total = reading.locate(p)
        if total is not None and total < wanted[p]:
            learned[p] = total
    if len(reading.readers) < len(wanted):
        reading.source.exchange()  # the others wait for these, even where we need nothing of theirs
    for p, rows in wanted.items():
        if p not in reading.readers and totals.get(p) is None:
            total = _await_fact(reading, p, rows)
            if total is not None:
                learned[p] = total
    return learned


def _await_fact(reading: Reading, partition: int, rows: int) -> int | None:
    """The total of another consumer's partition if it is below `rows`; None if it is not."""
    patience = Patience(reading.source.timeout_seconds)
    while True:
        known = reading.source.facts.of(reading.epoch, partition)
        if known.rows_seen >= rows:
            return None
        if known.ended:
            return known.rows_seen
        patience.saw((known.rows_seen, known.remade))
        reading.wait_facts(f"the other trainers' positions in partition {partition}", patience)


def rows_at(
    position: Position,
    job: types_pb2.Job,
    share: Share,
    group: tuple[int, ...],
    totals: Mapping[int, int | None],
) -> dict[int, int]:
    """Rows of each partition of `group` consumed at `position`, given the totals known so far.

    Where steps are cut as before, units of a step begun are left out there, not counted here.
    """
    if position.own_rows:
        own = share_of(job, position.consumer, position.consumers).partitions
        return dict(zip(own, position.own_rows, strict=True))
    before = position.base_rows or [0] * job.partitions
    old = share_of(job, group[0] % position.consumers, position.consumers)
    return assignment.consumed_rows(
        {p: before[p] for p in group},
        totals,
        position.step - position.base_step,
        old.batch,
        old.quota,
        0 if same_cut(position, share) else position.extra_units * old.unit_rows,
    )


def start_of(position: Position, partition: int, rows: int, split_ids: list[int]) -> Start:
    """How to open a partition of which `rows` are consumed."""
    anchor = position.anchors[partition] if position.anchors else trainer_pb2.Anchor()
    if anchor.rows > rows:  # saved by someone who knew less of the rest: begin at the beginning
        anchor = trainer_pb2.Anchor()
    known = None
    for prefix in position.prefixes:
        if (
            prefix.partition == partition
            and anchor.ordinal < len(split_ids)
            and prefix.split == split_ids[anchor.ordinal]
            and prefix.rows <= rows - anchor.rows
        ):
            known = Prefix(prefix.rows, prefix.digest)
    return Start(anchor.ordinal, anchor.rows, rows, known)


def known_totals(position: Position) -> dict[int, int | None]:
    """Totals of the partitions that had ended when the position was saved."""
    return {p: anchor.rows for p, anchor in enumerate(position.anchors) if anchor.ended}
