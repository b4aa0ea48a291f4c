"""The turns of all inputs to get the operator's new pod template: `reconcile.pace` with its state.

The leader owns one object. Its state is derived from the inputs as they are reconciled, so a new
leader starts nothing before it has seen each input once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.reconcile.pace import (
    PaceLimit,
    RolloutState,
    Turn,
    free_slots,
    is_stopped,
)


class Rollouts:
    """The state of each input's rollout."""

    def __init__(self, limit: PaceLimit) -> None:
        """Create without inputs. At most `limit` of them hold a slot at the same time."""
        self._limit = limit
        self._states: dict[InputKey, RolloutState] = {}
        self._unseen: set[InputKey] = set()

    def expect(self, keys: Iterable[InputKey]) -> None:
        """Start nothing before all these inputs were seen."""
        self._unseen |= set(keys)

    def seen(self, key: InputKey) -> None:
        """Record that an input was reconciled, also without success."""
        self._unseen.discard(key)

    def request(self, key: InputKey, state: RolloutState) -> Turn:
        """Record the state of an input. Return whether it may get the operator's template."""
        self._states[key] = state
        self._unseen.discard(key)
        if state is RolloutState.WAITING and self._free():
            self._states[key] = RolloutState.ROLLING
            return Turn.START
        if state in (RolloutState.WAITING, RolloutState.BUSY):
            return Turn.STOPPED if is_stopped(self.counts, self._limit) else Turn.WAIT
        return Turn.START

    def forget(self, key: InputKey) -> None:
        """Drop a deleted input, which frees its slot."""
        self._states.pop(key, None)
        self._unseen.discard(key)

    def next(self) -> list[InputKey]:
        """Return the inputs for which slots are free, those that wait longest first."""
        free = self._free()
        if not free:
            return []
        waiting = [key for key, one in self._states.items() if one is RolloutState.WAITING]
        return waiting[:free]

    def state(self, key: InputKey) -> RolloutState:
        """Return the last state of an input."""
        return self._states.get(key, RolloutState.SETTLED)

    @property
    def counts(self) -> Counter[RolloutState]:
        """The number of inputs by state."""
        return Counter(self._states.values())

    def _free(self) -> int:
        return 0 if self._unseen else free_slots(self.counts, self._limit)
