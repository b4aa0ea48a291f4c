"""The consumers of one job, and the decision which of two conflicting consumers is fenced. Pure.

A job has one run at a time, and a run has one number of consumers. Two live consumers of a job
therefore conflict if they have the same index or different counts. The newer incarnation stays.
The older one is *fenced*: the response to its heartbeats reports it, and it ends with an error. So
a run with another number of trainers takes over with its first heartbeat, and a trainer with a
wrong count gets an error with both counts.

Incarnations sort by age, because they start with the time. Only live consumers fence others: an
incarnation from a fast clock cannot block its successors after it has ended.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from distributed_input.api.errors import TerminalError
from distributed_input.api.proto.dispatcher_pb2 import ConsumerHeartbeatRequest
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.link.statuses import InvalidRequestError
from distributed_input.order.facts import FactStore

_MOST_PREFETCHED = 32  # batches that a trainer may still receive when its loop has stopped
_Setting = tuple[str, int, bytes]
"""A run, an epoch, and the weights of a mixture from a step on."""


@dataclass
class LiveConsumer:
    """A live consumer: its last heartbeat (without facts), and its time."""

    last: ConsumerHeartbeatRequest
    received: float


class ConsumerRegistry:
    """The live consumers of one job."""

    def __init__(self, limits: DispatcherLimits) -> None:
        self._limits = limits
        self._live: dict[str, LiveConsumer] = {}  # by incarnation
        self._done: set[int] = set()  # indices of the last run that finished or left
        self._count = 0  # number of consumers of the last run
        self.losses = 0
        """Number of consumers that expired before they finished."""
        self.fenced = 0
        """Number of heartbeats of fenced consumers."""
        # One incarnation for each setting: many trainers have the same one.
        self._settings: dict[_Setting, str] = {}
        self._disputes: dict[frozenset[tuple[_Setting, str]], dict[int, int]] = {}

    def beat(self, now: float, beat: ConsumerHeartbeatRequest) -> str | None:
        """Record a heartbeat.

        Returns:
            Why the sender is fenced; None if it holds its index.

        Raises:
            InvalidRequestError: names the invalid field.
            TerminalError: there are too many consumers.
        """
        check(beat)
        self.expire(now)
        conflicting = [c for c in self._live.values() if _exclude(c.last, beat)]
        newest = max(conflicting, key=lambda c: c.last.incarnation, default=None)
        if newest is not None and newest.last.incarnation > beat.incarnation:
            self.fenced += 1
            return _reason(newest.last, beat)
        for other in conflicting:  # includes its own last heartbeat
            del self._live[other.last.incarnation]
        if len(self._live) >= self._limits.consumers:
            raise TerminalError(f"job {beat.job}: more than {self._limits.consumers} consumers")
        self._note(beat, beat.finished)
        last = ConsumerHeartbeatRequest()
        last.CopyFrom(beat)
        last.ClearField("facts")
        self._live[beat.incarnation] = LiveConsumer(last, now)
        return None

    def release(self, incarnation: str) -> None:
        """Remove a consumer that has left the job."""
        left = self._live.pop(incarnation, None)
        if left is not None:
            self._note(left.last, done=True)

    def renew(self) -> None:
        """Clear the finished consumers, after a new registration of the job."""
        self._done.clear()

    @property
    def over(self) -> bool:
        """Whether all consumers of the last run have finished or left."""
        return 0 < self._count == len(self._done)

    def _note(self, beat: ConsumerHeartbeatRequest, done: bool) -> None:
        if beat.count != self._count:
            self._count = beat.count
            self._done.clear()
        if done and beat.count <= self._limits.consumers:
            self._done.add(beat.index)
        else:
            self._done.discard(beat.index)

    def expire(self, now: float) -> None:
        """Remove consumers without a recent heartbeat."""
        oldest = now - self._limits.expiry
        for incarnation in [key for key, c in self._live.items() if c.received < oldest]:
            self.losses += not self._live.pop(incarnation).last.finished

    def live(self, now: float) -> list[LiveConsumer]:
        """Return the live consumers, by index."""
        self.expire(now)
        return sorted(self._live.values(), key=lambda c: c.last.index)

    def last_held(self, now: float) -> float | None:
        """Return the time of the last heartbeat of an unfinished live consumer, or None."""
        self.expire(now)
        return max((c.received for c in self._live.values() if not c.last.finished), default=None)

    def is_read(self, now: float, other_than: str) -> bool:
        """Return whether a trainer reads the job, of another incarnation than `other_than`."""
        return any(
            not (one.last.finished or one.last.no_trainer) and one.last.incarnation != other_than
            for one in self.live(now)
        )

    def dispute(
        self, beat: ConsumerHeartbeatRequest, sources: Sequence[str], *, drops: bool = False
    ) -> str:
        """Return that two trainers set different weights of a mixture at one step, or "".

        Trainers that go back to a checkpoint and set other weights do so one after the other, and
        their heartbeats may be late. So both must have read more since the difference is known.

        Args:
            beat: heartbeat that was recorded last.
            sources: names of the sources of the mixture.
            drops: whether the mixture goes on without sources that have ended.
        """
        if not (self._settings or beat.weights.weights):
            return ""
        own = _setting(beat)
        self._settings = {
            setting: one
            for setting, one in self._settings.items()
            if one in self._live and (one != beat.incarnation or setting == own)
        }
        chosen = set(self._settings.items())
        self._disputes = {key: at for key, at in self._disputes.items() if key <= chosen}
        if not beat.weights.weights:
            return ""
        if self._settings.setdefault(own, beat.incarnation) != beat.incarnation:
            return ""
        for setting, incarnation in self._settings.items():
            other = self._live[incarnation].last
            if not _contradict(other, beat, drops):
                continue
            key = frozenset({(setting, incarnation), (own, beat.incarnation)})
            begun = self._disputes.setdefault(key, {})
            begun.setdefault(beat.index, beat.batches)
            if all(
                one.batches - begun.get(one.index, one.batches) >= _MOST_PREFETCHED
                for one in (other, beat)
            ):
                texts = (_weights_text(one, sources) for one in (other, beat))
                return (
                    f"epoch {beat.epoch}, step {beat.weights.step}: {', and '.join(texts)}. "
                    "Call set_weights in all trainers after the same step with the same weights"
                )
        return ""

    def failure(
        self, beat: ConsumerHeartbeatRequest, facts: FactStore, partitions: int
    ) -> tuple[int, str]:
        """Return why another consumer will report no more facts about the epoch of `beat`.

        Args:
            beat: heartbeat of the consumer that may wait for these facts.
            facts: the facts of its run.
            partitions: number of partitions of the job.

        Returns:
            The epoch of the other consumer, and the error as text for people; (0, "") without one.
            The error that ended an epoch comes before a consumer that has left one.
        """
        others = [
            one.last
            for one in self._live.values()
            if one.last.index != beat.index and one.last.run == beat.run
        ]
        failed = [
            (one.epoch, f"trainer {one.index} of {one.count} has stopped: {one.failed}")
            for one in others
            if one.failed and one.epoch <= beat.epoch
        ]
        if failed:
            return max(failed)
        for one in others:
            own = range(one.index, partitions, one.count)
            if one.epoch > beat.epoch and not all(facts.of(beat.epoch, p).ended for p in own):
                return one.epoch, (
                    f"trainer {one.index} of {one.count} reads epoch {one.epoch + 1}, and has not "
                    f"read epoch {beat.epoch + 1} to its end. Take the same number of steps of "
                    "each epoch in all trainers, and restore all of them from the same checkpoint"
                )
        return 0, ""

    def epochs(self) -> tuple[int, int]:
        """Return the lowest and highest epoch of live consumers; (0, 0) if there are none."""
        epochs = [c.last.epoch for c in self._live.values()] or [0]
        return min(epochs), max(epochs)


def check(beat: ConsumerHeartbeatRequest) -> None:
    """Raise InvalidRequestError, which names the field, if a heartbeat is invalid."""
    if not 0 < len(beat.incarnation) <= 512:
        raise InvalidRequestError("incarnation: must have 1 to 512 characters")
    if not beat.index < beat.count:
        raise InvalidRequestError(
            f"index: {beat.index} is not below count {beat.count}: the consumer index counts from 0"
        )


def _contradict(
    one: ConsumerHeartbeatRequest, other: ConsumerHeartbeatRequest, drops: bool
) -> bool:
    """Return whether the weights of two trainers cannot be those of one program.

    If a source ends at the step at which a program sets weights, the weights without the source are
    of the same step. Which of both a trainer reports depends on when it has begun.
    """
    if (one.run, one.epoch, one.weights.step) != (other.run, other.epoch, other.weights.step):
        return False
    both = list(zip(one.weights.weights, other.weights.weights, strict=False))
    if not drops:
        return any(first != second for first, second in both)
    common = [(first, second) for first, second in both if first and second]
    return any(first * common[0][1] != second * common[0][0] for first, second in common)


def _setting(beat: ConsumerHeartbeatRequest) -> _Setting:
    return beat.run, beat.epoch, beat.weights.SerializeToString(deterministic=True)


def _weights_text(beat: ConsumerHeartbeatRequest, sources: Sequence[str]) -> str:
    weights = ", ".join(
        f"{name} {weight}" for name, weight in zip(sources, beat.weights.weights, strict=False)
    )
    return f"trainer {beat.index} of {beat.count} has the weights {weights}"


def _exclude(one: ConsumerHeartbeatRequest, other: ConsumerHeartbeatRequest) -> bool:
    return one.index == other.index or one.count != other.count


def _reason(newer: ConsumerHeartbeatRequest, older: ConsumerHeartbeatRequest) -> str:
    holder = f"consumer {newer.index} of {newer.count} (incarnation {newer.incarnation})"
    if newer.count == older.count:
        return (
            f"{holder} of job {older.job} started later with the same index. To run both, "
            "set different consumer indices"
        )
    return (
        f"{holder} of job {older.job} started later with a count of {newer.count}, not "
        f"{older.count}. If both belong to one run, set the same consumer count for both"
    )
