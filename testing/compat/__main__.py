"""Run the compatibility tests and compare docs/compatibility.md with their outcomes.

python -m testing.compat [--write] [PYTEST FLAGS]
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Generator
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import pytest

from testing.compat.behaviour import Behaviour
from testing.compat.page import Result, page, with_earlier_outcomes

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "compatibility.md"
_SEVERITY = ("passed", "skipped", "failed")


class Recorder:
    """A pytest plugin that records the outcomes of the marked tests."""

    def __init__(self) -> None:
        self._found: dict[tuple[Behaviour, str, str], tuple[str, str]] = {}

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(
        self, item: pytest.Item
    ) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Record the worst outcome of set-up, call and teardown over a test's parameters."""
        report = yield
        why = ""
        if report.skipped and isinstance(report.longrepr, tuple):
            why = report.longrepr[2].removeprefix("Skipped: ")
        file, test = report.location[0], report.location[2].split("[")[0]
        # The decorators closest to the function come first.
        for mark in item.iter_markers("behaviour"):
            key = (mark.args[0], file, test)
            last = self._found.get(key, ("passed", ""))
            self._found[key] = max(last, (report.outcome, why), key=_severity)
        return report

    @property
    def results(self) -> list[Result]:
        """The results of all tests, in the order in which they ran."""
        return [Result(*key, *outcome) for key, outcome in self._found.items()]


def _severity(outcome: tuple[str, str]) -> int:
    return _SEVERITY.index(outcome[0])


def _run() -> str:
    for name in ("tensorflow-cpu", "tensorflow"):
        try:
            return f"They ran on TensorFlow {version(name)}, on CPUs only."
        except PackageNotFoundError:
            continue
    raise SystemExit("TensorFlow is not installed: run `make setup`")


def main(flags: list[str]) -> int:
    """Return the exit status: not 0 if a test fails or the page is out of date."""
    write = "--write" in flags
    recorder = Recorder()
    arguments = [str(ROOT / "tests" / "compat"), *(flag for flag in flags if flag != "--write")]
    status = int(pytest.main(arguments, plugins=[recorder]))
    if status:
        return status
    before = PAGE.read_text() if PAGE.exists() else ""
    new_page = with_earlier_outcomes(page(recorder.results, _run()), before)
    if write:
        PAGE.write_text(new_page)
        return 0
    differing = list(
        difflib.unified_diff(
            before.splitlines(),
            new_page.splitlines(),
            str(PAGE.relative_to(ROOT)),
            "the outcomes of the tests",
            lineterm="",
        )
    )
    if differing:
        print("\n".join(differing))
        print("The page is out of date: run `make compat-page` and commit it.")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
