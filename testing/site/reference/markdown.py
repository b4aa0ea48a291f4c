"""Markdown for generated pages."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Return a table; a cell is one line."""
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(map(cell, line))} |\n" for line in lines) + "\n"


def cell(text: str) -> str:
    """Return text for a cell."""
    return " ".join(text.replace("|", "\\|").split())


def code(text: object) -> str:
    """Return text as code; empty text stays empty."""
    return f"`{text}`" if str(text) else ""


def path(text: str) -> str:
    """Return a long name as code, with places to break the line."""
    breakable = re.sub(r"([._])", r"\1<wbr>", text)
    return f"<code>{breakable}</code>"


def fenced(text: str, language: str = "text") -> str:
    """Return a code block."""
    return f"```{language}\n{text.strip(chr(10))}\n```\n\n"
