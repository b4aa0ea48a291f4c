"""The end of an epoch, at which all consumers meet.

All consumers must deliver the same number of steps in an epoch. Otherwise the collective operations
of those that continue would hang. Within an epoch no consumer has to ask the others. Near the end,
the facts exchanged through the dispatcher decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import splits as assignment
from distributed_input.order.facts import PartitionKnowledge
from distributed_input.order.share import Share
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline

_REFRESH_SECONDS = 1.0  # an older split border is right too, it only makes a replay longer
_STEPS_AHEAD = 64  # facts are requested so many steps before they are needed


class StepBarrier:
    """The other consumers' progress in an epoch, as far as the facts show it.

    Args:
        reader: reader of the epoch, whose source has the facts.
        share: share of this consumer.
        base_rows: rows of each partition consumed when this pass began.

    Attributes:
        is_alone: whether this consumer depends on no other.
    """

    def __init__(self, reader: EpochReader, share: Share, base_rows: Sequence[int]) -> None:
        self._reader = reader
        self._job = reader.source.job
        self._share = share
        self._base_rows = base_rows
        self._own_base = sum(base_rows[p] for p in share.partitions)
        self._anchors: dict[int, trainer_pb2.Anchor] = {}
        self._refreshed_at = float("-inf")
        self._full_steps = 0  # steps for which all others have a full batch, as far as is known
        self._merged = -1  # facts that `_full_steps` is computed from
        self.is_alone = share.consumers == 1 or self._job.mode == types_pb2.PARALLEL_EPOCHS

    def any_has_rows(self, steps: int) -> bool:
        """Wait until the facts show whether another consumer has rows after `steps` steps."""
        return self._decide(lambda rows: rows > steps * self._share.batch, any_of=True)

    def all_have_full_step(self, steps: int) -> bool:
        """Wait until the facts show whether all others have a full batch after `steps` steps.

        Facts are exchanged ahead of need, so that a step costs no exchange of its own.
        """
        if self.is_alone:
            return True
        self._exchange_ahead(steps)
        if steps < self._full_steps:
            return True
        return self._decide(lambda rows: rows >= (steps + 1) * self._share.batch, any_of=False)

    def _exchange_ahead(self, steps: int) -> None:
        """Request a heartbeat if this consumer, or another one, will soon need facts."""
        facts = self._reader.source.facts
        if self._full_steps < steps + _STEPS_AHEAD and self._merged != facts.merged:
            self._merged = facts.merged
            rows = (self._rows_of(consumer)[0] for consumer in self._others())
            self._full_steps = min(rows) // self._share.batch
        reported = (self._reader.reported_rows - self._own_base) // self._share.batch
        if min(self._full_steps, reported) < steps + _STEPS_AHEAD:
            self._reader.source.exchange.request_heartbeat()

    def _decide(self, enough: Callable[[int], bool], any_of: bool) -> bool:
        """Return whether any (or all) of the others have enough rows, once the facts show it."""
        if self.is_alone:
            return not any_of
        deadline = ProgressDeadline(self._reader.source.timeout_seconds)
        while True:
            known = {c: self._rows_of(c) for c in self._others()}
            verdicts = [
                True if enough(rows) else (False if ended else None)
                for rows, ended, _ in known.values()
            ]
            if any_of in verdicts:
                return any_of
            if None not in verdicts:
                return not any_of
            deadline.observe(known)
            self._reader.wait_facts("the other trainers' end of the epoch", deadline)

    def _others(self) -> list[int]:
        return [c for c in range(self._share.consumers) if c != self._share.consumer]

    def _rows_of(self, consumer: int) -> tuple[int, bool, int]:
        """Return (a consumer's rows since the base, whether that is all, rows replayed)."""
        rows, ended, replayed = 0, True, 0
        for p, known in self._facts_of(consumer).items():
            rows += max(0, known.rows_seen - self._base_rows[p])
            ended = ended and known.ended
            replayed += known.replayed
        return rows, ended, replayed

    def _facts_of(self, consumer: int) -> dict[int, PartitionKnowledge]:
        """Return the facts about a consumer's partitions."""
        facts, epoch = self._reader.source.facts, self._reader.plan.epoch
        own = assignment.partitions_of(consumer, self._share.consumers, self._job.partitions)
        return {p: facts.of(epoch, p) for p in own}

    def anchors(self, steps: int) -> dict[int, trainer_pb2.Anchor]:
        """Return a split border for each partition of the others.

        It lies at or before the row at which the consumer stands after `steps` steps.
        """
        now = time.monotonic()
        if self.is_alone or now - self._refreshed_at < _REFRESH_SECONDS:
            return self._anchors
        self._refreshed_at = now
        for consumer in self._others():
            known = self._facts_of(consumer)
            consumed = assignment.consumed_rows(
                {p: self._base_rows[p] for p in known},
                {p: k.rows_seen if k.ended else None for p, k in known.items()},
                steps,
                self._share.batch,
                self._share.quota,
            )
            for p in known:
                ordinal, rows = known[p].last_border(consumed[p])
                ended = known[p].ended and rows == known[p].rows_seen
                self._anchors[p] = trainer_pb2.Anchor(ordinal=ordinal, rows=rows, ended=ended)
        return self._anchors
