"""Sections of a Markdown file that a command writes, between two comments."""

from __future__ import annotations

from pathlib import Path


def write_section(path: Path, name: str, text: str) -> None:
    """Replace the section `name` of a file, or append it.

    The section lies between the comments `<!-- name -->` and `<!-- end of name -->`, each on a
    line.
    """
    begin, end = f"<!-- {name} -->", f"<!-- end of {name} -->"
    section = f"{begin}\n{text.strip()}\n{end}\n"
    before = path.read_text() if path.exists() else ""
    if begin in before and end in before:
        head, _, rest = before.partition(begin)
        section = head + section + rest.partition(f"{end}\n")[2]
    elif before:
        section = f"{before.rstrip()}\n\n{section}"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(section)
