"""What a consumer must know of the others: when all of them end, and where they stand.

All consumers see the same number of steps in an epoch, or the collectives of those that go on
would hang. Mid-epoch nobody has to ask; near the end the facts that pass through the
dispatcher decide.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.assignment import splits as assignment
from distributed_input.assignment.share import Share
from distributed_input.sidecar.steps.progress_deadline import Patience
from distributed_input.sidecar.steps.reading import Reading

_REFRESH_SECONDS = 1.0  # an older split border is as right as a newer, it only replays longer


class Lockstep:
    """The other consumers, as far as this one can tell.

    Args:
        reading: whose facts say it.
        share: of this consumer.
        base_rows: by partition, consumed when this pass began.
    """

    def __init__(self, reading: Reading, share: Share, base_rows: Sequence[int]) -> None:
        self._reading = reading
        self._job = reading.source.job
        self._share = share
        self._base_rows = base_rows
        self._anchors: dict[int, trainer_pb2.Anchor] = {}
        self._refreshed_at = float("-inf")
        self.alone = share.consumers == 1 or self._job.mode == types_pb2.PARALLEL_EPOCHS

    def any_has_rows(self, steps: int) -> bool:
        """Whether another has rows after `steps` steps: then its collectives need us."""
        return self._decide(lambda rows: rows > steps * self._share.batch, any_of=True)

    def all_have_full_step(self, steps: int) -> bool:
        """Whether all others have a full batch after `steps` steps: with `drop`, all need one."""
        return self._decide(lambda rows: rows >= (steps + 1) * self._share.batch, any_of=False)

    def _decide(self, enough: Callable[[int], bool], any_of: bool) -> bool:
        """Wait until the facts decide whether any (or all) of the others have enough rows."""
        if self.alone:
            return not any_of
        patience = Patience(self._reading.source.timeout_seconds)
        while True:
            known = {c: self._known_of(c) for c in self._others()}
            verdicts = [
                True if enough(rows) else (False if ended else None)
                for rows, ended, _ in known.values()
            ]
            if any_of in verdicts:
                return any_of
            if None not in verdicts:
                return not any_of
            patience.saw(known)
            self._reading.wait_facts("the other trainers' end of the epoch", patience)

    def _others(self) -> list[int]:
        return [c for c in range(self._share.consumers) if c != self._share.consumer]

    def _known_of(self, consumer: int) -> tuple[int, bool, int]:
        """(rows of a consumer from the base on, whether that is all, rows it had made again)."""
        rows, ended, remade = 0, True, 0
        for p in self._group(consumer):
            known = self._reading.source.facts.of(self._reading.epoch, p)
            rows += max(0, known.rows_seen - self._base_rows[p])
            ended = ended and known.ended
            remade += known.remade
        return rows, ended, remade

    def _group(self, consumer: int) -> list[int]:
        return assignment.partitions_of(consumer, self._share.consumers, self._job.partitions)

    def anchors(self, steps: int) -> dict[int, trainer_pb2.Anchor]:
        """Of the others' partitions: a split border at or before where they are after `steps`."""
        now = time.monotonic()
        if self.alone or now - self._refreshed_at < _REFRESH_SECONDS:
            return self._anchors
        self._refreshed_at = now
        for consumer in self._others():
            group = self._group(consumer)
            known = {p: self._reading.source.facts.of(self._reading.epoch, p) for p in group}
            at = assignment.consumed_rows(
                {p: self._base_rows[p] for p in group},
                {p: k.rows_seen if k.ended else None for p, k in known.items()},
                steps,
                self._share.batch,
                self._share.quota,
            )
            for p in group:
                ordinal, rows = known[p].anchor(at[p])
                ended = known[p].ended and rows == known[p].rows_seen
                self._anchors[p] = trainer_pb2.Anchor(ordinal=ordinal, rows=rows, ended=ended)
        return self._anchors
