"""From what the tests showed to docs/compatibility.md. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from testing.compat.behaviour import Behaviour, Reference

_HEAD = """\
# Compatibility

What the references of TensorFlow's distributed input and of tf.data service show, and whether it
works with input that comes through DistributedInput. `make compat-page` writes this page from the
tests that it names and from what came of them; `make compat`, a part of `make test`, fails where
the page says anything else.
{run}

In the calls, `train` is `distributed_input.connect("train")`.
"""
_NOT_RUN = "not run: "
_COLUMNS = ("| shown there | with our input | test | status |", "|---|---|---|---|")


@dataclass(frozen=True)
class Result:
    """What came of one test, of all its parameters.

    Attributes:
        behaviour: that it shows.
        file: from the repository's root.
        test: its name.
        outcome: "passed", "failed" or "skipped".
        why: it was skipped.
    """

    behaviour: Behaviour
    file: str
    test: str
    outcome: str
    why: str = ""


def page(results: Iterable[Result], run: str) -> str:
    """The page in Markdown.

    Args:
        results: in the order of the rows.
        run: a sentence on what the tests ran on.
    """
    rows: dict[tuple[Reference, str], list[Result]] = {}
    for result in results:
        rows.setdefault((result.behaviour.reference, result.behaviour.shows), []).append(result)
    parts = [_HEAD.format(run=run)]
    for reference in Reference:
        lines = [_row(shown) for (where, _), shown in rows.items() if where is reference]
        if lines:
            table = "\n".join(_COLUMNS)
            parts.append(f"## {reference.value}\n\n{table}\n" + "\n".join(lines) + "\n")
    return "\n".join(parts)


def with_what_is_known(made: str, before: str) -> str:
    """A page on which rows that could not be shown here are as they were shown elsewhere."""
    known = {_shows(line): line for line in before.splitlines() if line.startswith("| ")}
    lines = made.splitlines(keepends=True)
    return "".join(
        known.get(_shows(line), line.rstrip("\n")) + "\n" if f" | {_NOT_RUN}" in line else line
        for line in lines
    )


def _shows(row: str) -> str:
    return row.rpartition(" | ")[0]


def _row(shown: Sequence[Result]) -> str:
    first = shown[0].behaviour
    tests = {f"[{one.test}](../{one.file})": None for one in shown}
    cells = (first.shows, first.call, "<br>".join(tests), _status(shown))
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


def _status(shown: Sequence[Result]) -> str:
    outcomes = {one.outcome for one in shown}
    skipped = "; ".join({one.why: None for one in shown if one.outcome == "skipped"})
    if "failed" in outcomes:
        return "**FAILED**"
    if outcomes == {"skipped"}:
        return f"{_NOT_RUN}{skipped}"
    needs = "; ".join({one.behaviour.needs: None for one in shown if one.behaviour.needs})
    notes = "; ".join({one.behaviour.note: None for one in shown if one.behaviour.note})
    status = "passed on CPUs" if needs else "passed"
    for words in (f"not run: {skipped}" * bool(skipped), f"the rest needs {needs}" * bool(needs)):
        status += f"; {words}" if words else ""
    return f"{status}. {notes}" if notes else status
