"""The laws of all stages: stop anywhere and restore, close twice, an error and again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

import pytest

from distributed_input.api.errors import DatasetFnError
from distributed_input.rows.stage import Stage

ALL_ROWS = 1000  # more than any stage has


class Chain(Protocol):
    """What the stages of one kind are made of. `open` returns one that stands at a state."""

    def open(self, state: Any) -> Stage[Any]: ...

    def take(self, stage: Any, rows: int) -> list[int]:
        """Return the next rows; fewer at the end."""
        ...

    def state(self, stage: Stage[Any]) -> Any: ...

    def close(self, stage: Stage[Any]) -> None: ...


def check_restored_anywhere(chain: Chain, stops: Iterable[int], rows: int) -> None:
    """A stage that stopped after any number of rows and was restored has the rest."""
    whole = chain.open(None)
    expected = chain.take(whole, ALL_ROWS)
    chain.close(whole)
    assert len(set(expected)) == len(expected) == rows
    found, state = [], None
    for stop in (*stops, ALL_ROWS):
        stage = chain.open(state)
        found += chain.take(stage, stop)
        state = chain.state(stage)
        chain.close(stage)
    assert found == expected


def check_closed_twice(chain: Chain, rows: int) -> None:
    """A stage that is closed twice keeps its state."""
    stage = chain.open(None)
    taken = len(chain.take(stage, 7))
    state = chain.state(stage)
    for _ in range(2):
        chain.close(stage)
        assert chain.state(stage) == state
    rest = chain.open(state)
    assert len(chain.take(rest, ALL_ROWS)) == rows - taken
    chain.close(rest)


def take_until_error(chain: Chain, rows: int) -> tuple[list[int], Any]:
    """Return the rows before an error, and the state. The stage raises it again."""
    stage = chain.open(None)
    found = chain.take(stage, rows)
    for _ in range(2):
        with pytest.raises(DatasetFnError, match="row cannot be read"):
            chain.take(stage, 1)
    state = chain.state(stage)
    chain.close(stage)
    return found, state


def check_rest(chain: Chain, found: list[int], state: Any, rows: int) -> None:
    """A stage that is created with the state of a failed one has the rest."""
    rest = chain.open(state)
    found = found + chain.take(rest, ALL_ROWS)
    chain.close(rest)
    assert len(set(found)) == len(found) == rows
