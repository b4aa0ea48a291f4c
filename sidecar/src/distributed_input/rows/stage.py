"""The contract of the stages that rows pass between a running split and the trainer.

A stage is restored by creating it with the state of another one.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeVar

from distributed_input.rows.blocks import RowBlock

State = TypeVar("State", covariant=True)


class Stage(Protocol[State]):
    """Rows in one order. Those of splits and partitions are read with the lock of the epoch held.

    `tests/unit/distributed_input/stage_laws.py` has the laws that all stages obey.
    """

    def next(self, limit: int, /) -> Iterable[RowBlock]:
        """Return the next rows, as views; none at the end, or if none are ready.

        Args:
            limit: number of rows at most. In a worker: bytes, which one block may exceed. A block
                with reports about the split has no rows.

        Raises:
            DistributedInputError: no more rows will come. Another call raises it again.
        """

    def state(self) -> State:
        """Return where the stage stands. One that is created with it has exactly the other rows."""

    def close(self) -> None:
        """Release what the stage holds. Its state stays. Closing it again does nothing."""
