"""Find the code blocks of the pages: fenced and indented ones, and commands within a line."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "examples/*/README.md", "sidecar/README.md", "operator/README.md")
UNCHECKED = ("CHANGELOG.md",)
"""Pages about the past."""
PROGRAMS = (
    "cd docker distributed-input export for done git helm kubectl make pip python sed ssh uv "
    "version=$(sed .venv/bin/pytest .venv/bin/pre-commit .ci/run"
).split()
"""First words of the lines of a shell block."""
_FENCE = re.compile(r"^( *)```(\w*)[^\n]*\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_INDENTED = re.compile(r"(?<=\n\n)((?: {4}.*\n|\n)+)(?=\n|\Z)")
_INLINE = re.compile(r"`((?:distributed-input|kubectl dinput|make) [^`]+)`")


@dataclass(frozen=True)
class Block:
    """A code block, or a command within a line."""

    page: str
    line: int
    language: str
    """As in the fence; "text" for an indented block that is no command; "inline"."""
    text: str

    @property
    def place(self) -> str:
        """Return page and line."""
        return f"{self.page}:{self.line}"


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages, relative to `root`."""
    found = {page.relative_to(root) for pattern in PAGES for page in root.glob(pattern)}
    return sorted(page for page in found if page.name not in UNCHECKED)


def all_blocks(root: Path = ROOT) -> Iterator[Block]:
    """Yield the blocks of all pages."""
    for page in pages(root):
        yield from blocks(page.as_posix(), (root / page).read_text(encoding="utf-8"))


def blocks(page: str, text: str) -> Iterator[Block]:
    """Yield the blocks of one page: fenced, then indented, then within a line."""

    def line(position: int) -> int:
        return text[:position].count("\n") + 1

    for found in _FENCE.finditer(text):
        body = "".join(one.removeprefix(found[1]) for one in found[3].splitlines(keepends=True))
        yield Block(page, line(found.start()), found[2] or "text", body)
    # Keep the line numbers.
    prose = _FENCE.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in _INDENTED.finditer(prose):
        body = "".join(one[4:] or "\n" for one in found[1].splitlines(keepends=True))
        language = "sh" if _is_shell(body) else "text"
        yield Block(page, prose[: found.start()].count("\n") + 1, language, body)
    for found in _INLINE.finditer(prose):
        yield Block(page, prose[: found.start()].count("\n") + 1, "inline", found[1])


def _is_shell(text: str) -> bool:
    """Return whether all lines begin with a program, or continue the line before."""
    lines = text.replace("\\\n", " ").splitlines()
    return all(line.split()[0] in PROGRAMS for line in lines if line.strip())
