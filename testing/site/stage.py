"""Copy the pages and what they link to into one folder, so that links work on the site too.

MkDocs reads one folder. The pages are in `docs/`, beside the code and at the top. Their links are
relative paths that also work on a forge, so the copy has the same layout as the repository.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = ("*.md", "docs/*.md", "examples/*/README.md")
_LINK = re.compile(r"\]\(([^)#\s]+)")
_FENCE = re.compile(r"^```.*?^```", re.MULTILINE | re.DOTALL)


def pages(root: Path = ROOT) -> list[Path]:
    """Return the pages of the site, relative to `root`."""
    found = [page for pattern in PAGES for page in root.glob(pattern)]
    return sorted(page.relative_to(root) for page in found)


def linked(page: Path, root: Path = ROOT) -> list[Path]:
    """Return the files in the repository that a page links to, relative to `root`.

    Links to nothing are not in the result. MkDocs reports them.
    """
    text = _FENCE.sub("", (root / page).read_text(encoding="utf-8"))
    targets = [(root / page.parent / link).resolve() for link in _LINK.findall(text)]
    return sorted({target.relative_to(root) for target in targets if target.is_file()})


def stage(target: Path, root: Path = ROOT) -> None:
    """Write the pages and what they link to into `target`, which is emptied first."""
    shutil.rmtree(target, ignore_errors=True)
    found = pages(root)
    copy({*found, *(file for page in found for file in linked(page, root))}, root, target)


def copy(files: Iterable[Path], root: Path, target: Path) -> None:
    """Copy files with their folders."""
    for file in files:
        (target / file).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(root / file, target / file)
