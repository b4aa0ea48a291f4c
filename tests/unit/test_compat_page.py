"""docs/compatibility.md shows the outcomes of the tests."""

from __future__ import annotations

from typing import Any

import pytest

from testing.compat.behaviour import Behaviour, Reference
from testing.compat.page import Result, page, with_earlier_outcomes


def result(
    outcome: str = "passed", reason: str = "", test: str = "test_it", **fields: Any
) -> Result:
    shown = {"reference": Reference.GUIDE, "shows": "a thing", "call": "`call()`", **fields}
    return Result(Behaviour(**shown), "tests/compat/test_file.py", test, outcome, reason)


def statuses(*results: Result) -> list[str]:
    """Return the last column of every row."""
    lines = page(results, "It ran.").splitlines()
    rows = [line for line in lines if line.startswith("| ") and "Documented behaviour" not in line]
    return [row.removesuffix(" |").rsplit(" | ", 1)[1] for row in rows]


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (["passed"], "passed"),
        (["passed", "failed"], "**FAILED**"),
        (["skipped", "failed"], "**FAILED**"),
        (["skipped"], "not run: no torch"),
        (["passed", "skipped"], "passed; not run: no torch"),
    ],
)
def test_the_status_is_the_worst_outcome(outcomes: list[str], status: str) -> None:
    assert statuses(*(result(one, "no torch" * (one == "skipped")) for one in outcomes)) == [status]


def test_the_status_names_missing_hardware_and_differences() -> None:
    found = statuses(result(needs="a TPU", note="Ours is sorted"))
    assert found == ["passed on CPUs; the rest needs a TPU. Ours is sorted"]


def test_tests_of_the_same_behaviour_are_one_row() -> None:
    other = result(reference=Reference.DATASET, shows="x | y")
    found = page([result(test="test_one"), other, result(test="test_two")], "It ran.")
    guide, dataset = found.split("## ")[1:]
    assert guide.count("a thing") == 1
    for test in ("test_one", "test_two"):
        assert f"[{test}](../tests/compat/test_file.py)" in guide
    assert "x \\| y" in dataset


def test_a_skipped_test_keeps_its_earlier_row() -> None:
    passed, skipped, failed = (
        page([result(one, "no torch" * (one == "skipped"))], "It ran.")
        for one in ("passed", "skipped", "failed")
    )
    assert with_earlier_outcomes(skipped, passed) == passed
    assert with_earlier_outcomes(skipped, "") == skipped
    assert with_earlier_outcomes(failed, passed) == failed
