"""What the commands share that write sections of a Markdown file, between two comments."""

from __future__ import annotations

import argparse
from pathlib import Path


def parser(name: str, description: str | None, runs: int = 0) -> argparse.ArgumentParser:
    """Return a parser with --out, and with --runs if there is a default for it."""
    made = argparse.ArgumentParser(
        prog=f"python -m testing.chaos.measurements.{name}", description=description
    )
    made.add_argument("--out", type=Path, help="Markdown file whose section to replace")
    if runs:
        made.add_argument("--runs", type=int, default=runs, help=f"of each case. Default: {runs}")
    return made


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
