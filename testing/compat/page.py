"""docs/compatibility.md as a pure function of the tests' results."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testing.compat.behaviour import Behaviour, Reference

_HEAD = """\
# Compatibility

This page lists the documented behaviour of TensorFlow's distributed input and of tf.data service,
and whether it works with DistributedInput. `make compat-page` generates the page from the linked
tests and their outcomes. `make compat`, a part of `make test`, fails if the page is out of date.
{run}

In the calls, `train` is `distributed_input.connect("train")`.
"""
_NOT_RUN = "not run: "
_COLUMNS = ("| Documented behaviour | With DistributedInput | Test | Status |", "|---|---|---|---|")


@dataclass(frozen=True)
class Result:
    """The outcome of one test over all its parameters.

    Attributes:
        behaviour: the behaviour that the test shows.
        file: path from the repository's root.
        test: name of the test.
        outcome: "passed", "failed" or "skipped".
        reason: reason for a skip.
    """

    behaviour: Behaviour
    file: str
    test: str
    outcome: str
    reason: str = ""


def page(results: Iterable[Result], run: str) -> str:
    """Return the page in Markdown.

    Args:
        results: in the order of the rows.
        run: a sentence about the environment of the tests.
    """
    rows: dict[tuple[Reference, str], list[Result]] = {}
    for result in results:
        rows.setdefault((result.behaviour.reference, result.behaviour.shows), []).append(result)
    parts = [_HEAD.format(run=run)]
    for reference in Reference:
        lines = [
            _row(row_results) for (where, _), row_results in rows.items() if where is reference
        ]
        if lines:
            table = "\n".join(_COLUMNS)
            parts.append(f"## {reference.value}\n\n{table}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def with_earlier_outcomes(new_page: str, before: str) -> str:
    """Return the page, with rows that could not run here replaced by those of the earlier page."""
    earlier = {_without_status(line): line for line in before.splitlines() if line.startswith("| ")}
    lines = new_page.splitlines(keepends=True)
    return "".join(
        earlier.get(_without_status(line), line.rstrip("\n")) + "\n"
        if f" | {_NOT_RUN}" in line
        else line
        for line in lines
    )


def _without_status(row: str) -> str:
    return row.rpartition(" | ")[0]


def _row(row_results: Sequence[Result]) -> str:
    first = row_results[0].behaviour
    tests = {f"[{one.test}](../{one.file})": None for one in row_results}
    cells = (first.shows, first.call, "<br>".join(tests), _status(row_results))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _status(row_results: Sequence[Result]) -> str:
    outcomes = {one.outcome for one in row_results}
    skipped = "; ".join({one.reason: None for one in row_results if one.outcome == "skipped"})
    if "failed" in outcomes:
        return "**FAILED**"
    if outcomes == {"skipped"}:
        return f"{_NOT_RUN}{skipped}"
    needs = "; ".join({one.behaviour.needs: None for one in row_results if one.behaviour.needs})
    notes = "; ".join({one.behaviour.note: None for one in row_results if one.behaviour.note})
    status = "passed on CPUs" if needs else "passed"
    for words in (f"not run: {skipped}" * bool(skipped), f"the rest needs {needs}" * bool(needs)):
        status += f"; {words}" if words else ""
    return f"{status}. {notes}" if notes else status
