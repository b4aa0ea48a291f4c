"""docs/pipelines.md lists the random ops that a worker replaces, and what it does with others."""

from __future__ import annotations

import re
from pathlib import Path

from distributed_input.graph.determinism import depends_on_order
from distributed_input.graph.random import generators
from distributed_input.graph.random.stateless_ops import REPLACED

PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"


def ops(action: str) -> set[str]:
    """Return the ops of the rows of the table with this last column."""
    rows = re.findall(r"^\| .* \| (.*) \| (.*) \|$", PAGE.read_text(), re.MULTILINE)
    names = {name for cell, last in rows if last == action for name in re.findall(r"\w+", cell)}
    return {name for name in names if re.match(r"[A-Z]\w*[a-z]", name)}


def test_the_replaced_ops_are_those_of_the_code() -> None:
    states = {"ReadVariableOp", "AssignVariableOp", "AssignAddVariableOp", "RngSkip"}
    assert ops("replaces it") == REPLACED | {generators.DRAW} | states


def test_ops_that_run_as_they_are_do_not_depend_on_the_order() -> None:
    kept = ops("runs it as it is")
    assert len(kept) >= 6
    assert [op for op in kept if depends_on_order(op)] == []


def test_ops_that_run_serially_depend_on_the_order_and_are_not_replaced() -> None:
    serial = ops("runs the dataset serially")
    assert len(serial) >= 5
    assert [op for op in serial if not depends_on_order(op)] == []
    assert not serial & REPLACED
