"""The page says what came of the tests, not what they claim."""

from __future__ import annotations

from typing import Any

import pytest

from testing.compat.behaviour import Behaviour, Reference
from testing.compat.page import Result, page, with_what_is_known


def result(outcome: str = "passed", why: str = "", test: str = "test_it", **fields: Any) -> Result:
    made = {"reference": Reference.GUIDE, "shows": "a thing", "call": "`call()`", **fields}
    return Result(Behaviour(**made), "tests/compat/test_file.py", test, outcome, why)


def statuses(*results: Result) -> list[str]:
    """The last column of every row."""
    lines = page(results, "It ran.").splitlines()
    rows = [line for line in lines if line.startswith("| ") and "shown there" not in line]
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


def test_absent_hardware_and_differences_are_told() -> None:
    told = statuses(result(needs="a TPU", note="Ours is sorted"))
    assert told == ["passed on CPUs; the rest needs a TPU. Ours is sorted"]


def test_tests_of_one_behaviour_are_one_row_in_its_references_section() -> None:
    made = page(
        [
            result(test="test_one"),
            result(reference=Reference.DATASET, shows="x | y"),
            result(test="test_two"),
        ],
        "It ran.",
    )
    guide, dataset = made.split("## ")[1:]
    assert guide.count("a thing") == 1
    for test in ("test_one", "test_two"):
        assert f"[{test}](../tests/compat/test_file.py)" in guide
    assert "x \\| y" in dataset


def test_what_cannot_run_here_stays_as_it_was_shown_elsewhere() -> None:
    passed, skipped, failed = (
        page([result(one, "no torch" * (one == "skipped"))], "It ran.")
        for one in ("passed", "skipped", "failed")
    )
    assert with_what_is_known(skipped, passed) == passed
    assert with_what_is_known(skipped, "") == skipped
    assert with_what_is_known(failed, passed) == failed
