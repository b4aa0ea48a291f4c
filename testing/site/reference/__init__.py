"""The reference pages, generated from the code, the custom resources and the chart.

`make site` writes them into the site. They are not in the repository, so they cannot be stale.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from testing.site.reference import api, cli, metrics, resource, values, versions

FOLDER = Path("docs") / "reference"
PAGES: dict[str, Callable[[], str]] = {
    "api.md": api.page,
    "cli.md": cli.page,
    "resource.md": resource.page,
    "metrics.md": metrics.page,
    "values.md": values.page,
    "versions.md": versions.page,
}
STYLE = "tables.css"
_STYLE = ".md-typeset table:not([class]) td:first-child code { word-break: normal; }\n"
"""The paths of fields break only where they may."""


def write(target: Path) -> None:
    """Write the pages below `target`, the folder that MkDocs reads."""
    (target / FOLDER).mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (target / FOLDER / name).write_text(page(), encoding="utf-8")
    (target / FOLDER / STYLE).write_text(_STYLE)
