"""Which change of an input a user waits for: one since this process leads, or an earlier one.

Thousands of inputs may have changed while no operator ran, for example because they are new. A
change that a user makes now goes before all of them.
"""

from __future__ import annotations

from distributed_input_operator.budget.claim import InputKey
from distributed_input_operator.controller.work_queue import Lane
from distributed_input_operator.kube.json_text import Json, shared


def is_changed(stored: Json) -> bool:
    """Return whether the operator has not yet applied the spec of an input."""
    observed = (stored.get("status") or {}).get("observedGeneration")
    return bool(observed != stored["metadata"].get("generation"))


class EarlierChanges:
    """The changed inputs that a new leader found, with the version of their spec."""

    def __init__(self) -> None:
        self._specs: dict[InputKey, tuple[str, int | None]] = {}

    def record(self, key: InputKey, stored: Json) -> None:
        """Record an input as a new leader lists it."""
        if is_changed(stored):
            self._specs[key] = _spec_version(stored)

    def lane(self, key: InputKey, stored: Json | None, unchanged: Lane) -> Lane:
        """Return the lane of an input.

        Args:
            key: the input.
            stored: the input as it is now. None: it is deleted.
            unchanged: its lane if its spec is applied.
        """
        if stored is None or not is_changed(stored):
            self._specs.pop(key, None)
            return unchanged
        known = self._specs.get(key) == _spec_version(stored)
        return Lane.EARLIER_CHANGE if known else Lane.CHANGE


def _spec_version(stored: Json) -> tuple[str, int | None]:
    """Return the uid and generation: another input of this name begins with generation 1 again."""
    meta = stored["metadata"]
    return shared(meta.get("uid", "")), meta.get("generation")
