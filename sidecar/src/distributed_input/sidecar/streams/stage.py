"""The contract of the stages that rows pass between the workers and the trainer.

A stage is restored by creating it with the state of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from distributed_input.rows.blocks import RowBlock

State = TypeVar("State", covariant=True)


class Stage(Protocol[State]):
    """Rows in one order. Those of splits and partitions are read with the lock of the epoch held.

    `tests/unit/distributed_input/sidecar/test_stages.py` has the laws that all stages obey.
    """

    def next(self, rows: int) -> Iterable[RowBlock]:
        """Return at most `rows` of the next rows, as views; none at the end.

        Raises:
            DistributedInputError: no more rows will come. Another call raises it again.
        """

    def state(self) -> State:
        """Return where the stage stands. One that is created with it has exactly the other rows."""

    def close(self) -> None:
        """Release what the stage holds. Its state stays. Closing it again does nothing."""
