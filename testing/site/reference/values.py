"""The page about the chart's values, from values.yaml and its comments."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

import yaml

from testing.site.reference.markdown import code, path, table
from testing.site.stage import ROOT

FILE = ROOT / "charts" / "distributed-input" / "values.yaml"
_LINE = re.compile(r"^( *)([A-Za-z]\w*):(?: (.*))?$")


@dataclass(frozen=True)
class ChartValue:
    """One value: its path, default and description."""

    path: str
    default: str
    """"" for a group of values."""
    description: str


def page() -> str:
    """Return the page."""
    rows = [
        [path(one.path), code(one.default), one.description]
        for one in values(FILE.read_text())
        if one.default or one.description
    ]
    return (
        "# Values of the chart\n\nSet them with `helm install --set` or `--values`. "
        "`values.schema.json` in the chart validates them.\n\n"
        + table(("Value", "Default", "Description"), rows)
    )


def values(text: str) -> Iterator[ChartValue]:
    """Yield each value. Its description is the comment right above it.

    Without a comment, a value has that of the value above it with the same indent, if no empty line
    is between them: they share it. Otherwise it has that of its group.
    """
    parents: list[str] = []
    comment: list[str] = []
    shared: dict[int, str] = {}
    groups: dict[str, str] = {}
    for line in text.splitlines():
        if line.strip().startswith("#"):
            comment.append(line.strip().removeprefix("#").strip())
            continue
        found = _LINE.match(line)
        if not found:
            comment, shared = [], {}
            continue
        depth, name, default = len(found[1]) // 2, found[2], found[3] or ""
        parents = [*parents[:depth], name]
        description = " ".join(comment) or (shared.get(depth, "") if default else "")
        if not default:
            groups[".".join(parents)] = description
        description = description or next(
            (one for n in range(depth, 0, -1) if (one := groups.get(".".join(parents[:n])))), ""
        )
        shared = {**{key: one for key, one in shared.items() if key <= depth}, depth: description}
        yield ChartValue(".".join(parents), default, description)
        comment = []


def paths(document: dict[str, object], prefix: str = "") -> Iterator[str]:
    """Yield the path of each value in a document, as `values` does."""
    for name, value in document.items():
        yield prefix + name
        if isinstance(value, dict) and value and not _is_inline(prefix + name):
            yield from paths(value, f"{prefix}{name}.")


def _is_inline(path: str) -> bool:
    """Return whether a mapping is written in one line, as one value."""
    return any(one.path == path and one.default for one in values(FILE.read_text()))


def documented_paths() -> list[str]:
    """Return the paths in values.yaml as YAML reads it."""
    return list(paths(yaml.safe_load(FILE.read_text())))
