"""Mistakes of new users: the output names the remedy, and docs/mistakes.md shows it.

`make mistakes` also makes those that start an input.
"""

from __future__ import annotations

import pytest

from testing.mistakes.__main__ import PAGE
from testing.mistakes.cases import MISTAKES
from testing.mistakes.outputs import output, section

QUICK = [one for one in MISTAKES if one.is_quick]


def test_there_are_30_mistakes_and_all_are_on_the_page():
    assert len(MISTAKES) >= 30
    page = PAGE.read_text()
    assert all(f"**{one.what}**" in page and f"$ {one.command}" in page for one in MISTAKES)


@pytest.mark.parametrize("mistake", QUICK, ids=[one.what for one in QUICK])
def test_a_mistake_is_explained(mistake):
    found = output(mistake)
    assert not found.problem, found.text
    assert section(found) in PAGE.read_text()
