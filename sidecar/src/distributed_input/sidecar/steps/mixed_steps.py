"""What the steps of a mixture take, and the end of its epoch, at which all consumers meet.

The rows that a step takes of each list of splits follow from the seed, the step and the weights. So
the rows of all lists before a step are known, also those that other consumers read. If lists
repeat, no consumer asks another one. Else the epoch ends with the last step for which every list
has rows.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence

import numpy as np

from distributed_input.api.errors import PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.order import mixture
from distributed_input.order.mixture import Counts, Mixer
from distributed_input.order.share import Share
from distributed_input.runtime import logs
from distributed_input.sidecar.steps.epoch_reader import EpochReader
from distributed_input.sidecar.steps.progress_deadline import ProgressDeadline

_log = logs.get("sidecar.reading")
_REFRESH_SECONDS = 1.0  # an older split border is right too, it only makes a replay longer
_STEPS_AHEAD = 64  # facts are requested so many steps before they are needed


class MixedSteps:
    """The steps of a mixture's epoch, as far as they concern all consumers.

    It has what `StepBarrier` has.

    Args:
        reader: reader of the epoch, whose source has the facts.
        share: share of this consumer.
        log: the weights in force, by step of the epoch.
        base_step: step of the epoch from which this pass counts.
        base_rows: rows of each list consumed at that step.
        anchors: split borders at or before that step; None: there are none.

    Attributes:
        is_alone: whether this consumer depends on no other.
    """

    def __init__(
        self,
        reader: EpochReader,
        share: Share,
        log: Sequence[types_pb2.Weights],
        base_step: int,
        base_rows: Sequence[int],
        anchors: Mapping[int, trainer_pb2.Anchor] | None = None,
    ) -> None:
        self._reader, self._share, self._job = reader, share, reader.source.job
        self._mixer = Mixer(self._job, log)
        self._base_step, self._base_rows = base_step, np.array(base_rows, np.int64)
        self._others = [
            one for one in range(len(base_rows)) if one % share.consumers != share.consumer
        ]
        self._anchors = dict.fromkeys(self._others, trainer_pb2.Anchor())
        for one, anchor in (anchors or {}).items():
            if one in self._anchors and anchor.rows <= base_rows[one]:
                self._anchors[one] = anchor
        self._refreshed_at = float("-inf")
        self.is_alone = share.consumers == 1 or mixture.never_ends(self._job)

    @property
    def log(self) -> Sequence[types_pb2.Weights]:
        """The weights in force, by step of the epoch."""
        return self._mixer.log

    def turns(self, steps: int) -> Sequence[tuple[int, int]]:
        """Return what this consumer takes after `steps` steps: (list, rows), in order."""
        takes = self._mixer.takes(self._base_step + steps)
        return list(mixture.turns(self._share.partitions, len(self._job.sources), takes))

    def rows(self, steps: int) -> Counts:
        """Return the rows of each list consumed after `steps` steps."""
        return self._mixer.rows_at(self._base_step + steps, self._base_step, self._base_rows)

    def any_has_rows(self, steps: int) -> bool:
        """Return False: an epoch has only steps for which all consumers have rows."""
        del steps
        return False

    def all_have_full_step(self, steps: int) -> bool:
        """Wait until the facts show whether all others have their rows of the step after `steps`.

        Facts are exchanged ahead of need, so that a step costs no exchange of its own.
        """
        if self.is_alone:
            return True
        needed = self.rows(steps) + self._mixer.takes(self._base_step + steps)
        source, epoch = self._reader.source, self._reader.plan.epoch
        deadline = ProgressDeadline(source.timeout_seconds)
        ahead = _STEPS_AHEAD * self._share.quota
        while True:
            known = {one: source.facts.of(epoch, one) for one in self._others}
            left = {one: known.rows_seen - needed[one] for one, known in known.items()}
            if any(rows < 0 and known[one].ended for one, rows in left.items()):
                return False
            own = self._reader.reported_rows - sum(needed[one] for one in self._share.partitions)
            if min(*left.values(), own) < ahead:
                source.exchange.request_heartbeat()
            if min(left.values()) >= 0:
                return True
            deadline.observe({one: (each.rows_seen, each.replayed) for one, each in known.items()})
            self._reader.wait_facts("the other trainers' rows of a mixture", deadline)

    def short_lists(self, steps: int, own: Collection[int]) -> set[int]:
        """Wait until the facts show which lists have too few rows for the step after `steps`.

        All consumers get the same answer.

        Args:
            steps: steps since the base.
            own: lists of this consumer that have too few. All others of it have enough.
        """
        needed = self.rows(steps) + self._mixer.takes(self._base_step + steps)
        source, epoch = self._reader.source, self._reader.plan.epoch
        deadline = ProgressDeadline(source.timeout_seconds)
        while True:
            known = {one: source.facts.of(epoch, one) for one in self._others}
            short = {one for one, facts in known.items() if facts.rows_seen < needed[one]}
            if all(known[one].ended for one in short):
                return {*own, *short}
            deadline.observe({one: (each.rows_seen, each.replayed) for one, each in known.items()})
            self._reader.wait_facts("the other trainers' rows of a mixture", deadline)

    def report_ended(self, steps: int, short: Collection[int]) -> None:
        """Log the sources that are left out after `steps` steps, with their rows so far.

        Args:
            steps: steps since the base.
            short: lists with too few rows for the next step.
        """
        partitions = self._job.partitions
        rows = self.rows(steps).reshape(-1, partitions)
        for source in sorted({one // partitions for one in short}):
            _log.warning(
                "a source is left out, because a partition has too few rows of it",
                epoch=self._reader.plan.epoch,
                step=self._base_step + steps,
                source=self._job.sources[source].entry_point.source,
                partitions=sorted(one % partitions for one in short if one // partitions == source),
                delivered_rows=int(rows[source].sum()),
            )

    def anchors(self, steps: int) -> dict[int, trainer_pb2.Anchor]:
        """Return a split border for each list of the others.

        It lies at or before the row at which the consumer stands after `steps` steps.
        """
        now = time.monotonic()
        if not self._others or now - self._refreshed_at < _REFRESH_SECONDS:
            return self._anchors
        self._refreshed_at = now
        source, rows = self._reader.source, self.rows(steps)
        if mixture.never_ends(self._job):
            source.facts.trim(mixture.MOST_BORDERS)
            source.exchange.request_heartbeat()
        for one in self._others:
            known = source.facts.of(self._reader.plan.epoch, one)
            ordinal, before = known.last_border(int(rows[one]))
            ended = known.ended and before == known.rows_seen
            if ended or before >= self._anchors[one].rows:  # facts may be new, or trimmed
                self._anchors[one] = trainer_pb2.Anchor(ordinal=ordinal, rows=before, ended=ended)
        return self._anchors


def log_of(position: trainer_pb2.Position, job: types_pb2.Job) -> list[types_pb2.Weights]:
    """Return the weights in force from a position on, and log if they are new ones."""
    if position.weights and mixture.has_other_weights(position, job):
        _log.warning(
            "spec.mixture has other weights than the checkpoint: they are used from its step on",
            step=mixture.next_step(position),
        )
    return mixture.log_of(position, job)


def rows_of(position: trainer_pb2.Position, job: types_pb2.Job) -> list[int]:
    """Return the rows of each list of a mixture consumed at a position."""
    before = np.array(list(position.base_rows) or [0] * mixture.lists_of(job), np.int64)
    mixer = Mixer(job, position.weights or job.weights)
    rows: list[int] = mixer.rows_at(position.step, position.base_step, before).tolist()
    return rows


def are_of_one_sequence(
    one: trainer_pb2.Position, other: trainer_pb2.Position, job: types_pb2.Job
) -> bool:
    """Return whether readers at two positions of an epoch get the same rows behind the later one.

    Args:
        one: a position of the mixture. Without fields: the start of the epoch.
        other: another one.
        job: the mixture.
    """
    earlier, later = sorted((one, other), key=lambda each: each.step)
    at = max(map(mixture.next_step, (one, other)))
    log, later_log = (mixture.log_of(each, job) for each in (earlier, later))
    before = np.array(rows_of(earlier, job), np.int64)
    rows: list[int] = Mixer(job, log).rows_at(later.step, earlier.step, before).tolist()
    same_weights = mixture.log_from(at, log) == mixture.log_from(at, later_log)
    return same_weights and rows == rows_of(later, job)


def check_rows(reader: EpochReader, rows: Sequence[int]) -> None:
    """Wait until the starts of the open lists are found.

    Raises:
        PositionError: a list has fewer rows than were consumed of it.
    """
    for one in reader.partitions:
        total = reader.locate(one)
        if total is not None and total < rows[one]:
            raise PositionError(
                f"{rows[one]} rows of a list of splits were consumed, and it now has {total}: the "
                "dataset has changed since the checkpoint was saved. Restore it, or start without "
                "the checkpoint"
            )
