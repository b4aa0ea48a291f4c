"""The turns of all inputs to get the operator's new pod template: `reconcile.pace` with its state.

The leader owns one object. Its state is derived from the inputs as they are reconciled, so a new
leader starts nothing before it has seen each input once. Every call needs the same time, however
many inputs there are.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from itertools import chain, islice

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.reconcile.pace import (
    PaceLimit,
    RolloutState,
    Turn,
    free_slots,
    is_stopped,
)

_HELD = (RolloutState.WAITING, RolloutState.BUSY)
"""States of an input that keeps an earlier template."""


class Rollouts:
    """The state of each input's rollout."""

    def __init__(self, limit: PaceLimit) -> None:
        """Create without inputs. At most `limit` of them hold a slot at the same time."""
        self._limit = limit
        self._states: dict[InputKey, RolloutState] = {}
        self._counts: Counter[RolloutState] = Counter()
        self._unseen: set[InputKey] = set()
        self._refused: set[InputKey] = set()
        """Inputs whose new template the API server does not accept."""
        self._healthy: dict[InputKey, None] = {}
        """Waiting inputs that serve with all their pods. They start first."""
        self._impaired: dict[InputKey, None] = {}
        """Waiting inputs that lack pods. Their new pods may fail although the template is good."""
        self._called: set[InputKey] = set()
        """Inputs that `next` has returned. A free slot is reserved for each."""

    def expect(self, keys: Iterable[InputKey]) -> None:
        """Start nothing before all these inputs were seen."""
        self._unseen |= set(keys)

    def request(self, key: InputKey, state: RolloutState, *, healthy: bool = True) -> Turn:
        """Record the state of an input. Return whether it may get the operator's template.

        Args:
            key: the input.
            state: as its objects in the cluster show it.
            healthy: whether all its pods are available. Other inputs start after the healthy ones.
        """
        self._unseen.discard(key)
        self._called.discard(key)
        if key in self._refused:
            if state in (RolloutState.WAITING, RolloutState.ROLLING):
                return Turn.START  # It stays FAILING while the template is tried again.
            self._refused.discard(key)
        if state is not RolloutState.WAITING:
            self._set(key, state)
        elif self._free() > (0 if healthy else len(self._healthy) - (key in self._healthy)):
            self._set(key, RolloutState.ROLLING)
            return Turn.START
        else:
            self._set(key, state)
            line, other = self._healthy, self._impaired
            if not healthy:
                line, other = other, line
            other.pop(key, None)
            line.setdefault(key)
        if state not in _HELD:
            return Turn.START
        if is_stopped(self._counts, self._limit):
            return Turn.STOPPED
        return Turn.FOLLOW if state is RolloutState.BUSY else Turn.WAIT

    def record_write(self, key: InputKey, *, refused: bool) -> None:
        """Record whether the API server refuses the template that `request` allowed.

        The input is FAILING until the template is accepted, or another change replaces its pods.
        """
        if refused:
            self._refused.add(key)
            self._set(key, RolloutState.FAILING)
        elif key in self._refused:
            self._refused.discard(key)
            self._set(key, RolloutState.ROLLING)

    def end(self, key: InputKey, *, failed: bool) -> None:
        """Record that the reconciliation of an input ended.

        If it failed, the input is not in the queue for a slot until it requests again. Otherwise it
        would get the slot again and again, and the others never.
        """
        self._unseen.discard(key)
        if failed and self.state(key) in _HELD:
            self._set(key, None)

    def forget(self, key: InputKey) -> None:
        """Drop an input that this operator does not manage any more, which frees its slot."""
        self._set(key, None)
        self._unseen.discard(key)
        self._refused.discard(key)

    def next(self) -> list[InputKey]:
        """Return the inputs for which slots are free, those that wait longest first.

        Each is returned once: its slot is reserved until it requests, or its reconciliation ends.
        """
        found = list(islice(chain(self._healthy, self._impaired), max(0, self._free())))
        for key in found:
            self._leave_queue(key)
        self._called.update(found)
        return found

    def state(self, key: InputKey) -> RolloutState:
        """Return the last state of an input."""
        return self._states.get(key, RolloutState.SETTLED)

    @property
    def counts(self) -> Mapping[RolloutState, int]:
        """The number of inputs by state."""
        return self._counts

    def _set(self, key: InputKey, state: RolloutState | None) -> None:
        """Set the state of an input. None: it has none."""
        before = self._states.get(key)
        if state is not RolloutState.WAITING:
            self._leave_queue(key)
        if before is state:
            return
        if before is not None:
            self._counts[before] -= 1
        if state is None:
            del self._states[key]
        else:
            self._counts[state] += 1
            self._states[key] = state

    def _leave_queue(self, key: InputKey) -> None:
        self._called.discard(key)
        self._healthy.pop(key, None)
        self._impaired.pop(key, None)

    def _free(self) -> int:
        """Return the number of free slots that are not reserved."""
        if self._unseen:
            return 0
        return free_slots(self._counts, self._limit) - len(self._called)
