"""YAML as Kubernetes reads it, with the line of every field.

PyYAML alone differs from kubectl in small ways that would give one file two meanings: it
reads dates as objects, 1:30 as 90 and 1e-3 as text, and takes the last of two equal keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

Path = tuple[str | int, ...]

_TAG = "tag:yaml.org,2002:"
_NUMBER_STARTS = list("-+0123456789.")
_INT = re.compile(r"^[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^([-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
    r"|\.(nan|NaN|NAN))$"
)


class YamlError(Exception):
    """The text is not YAML that can be used.

    Attributes:
        line: 1-based, or None.
    """

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


# What PyYAML raises, besides its own, where a tag such as !!int or !!bool does not fit the value.
_MISFITS = (yaml.YAMLError, ValueError, AttributeError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True)
class Document:
    """One document: its value, and the 1-based line on which each field's key stands."""

    value: Any
    lines: dict[Path, int]

    def line(self, path: Path) -> int:
        """The line of a field; of the nearest field around it where it is not written."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, but for dates and numbers."""


_OURS = {f"{_TAG}{kind}" for kind in ("timestamp", "int", "float")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _OURS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}int", _INT, _NUMBER_STARTS)
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, _NUMBER_STARTS)


def documents(text: str) -> list[Document]:
    """All documents of a YAML text, but for empty ones.

    Raises:
        YamlError: it is not YAML, or a key is written twice, or a key is no text.
    """
    try:
        return list(_documents(_Loader(text)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        words = ", ".join(part for part in (error.context, error.problem) if part)
        raise YamlError(f"is not YAML: {words}", mark.line + 1 if mark else None) from None
    except _MISFITS as error:
        raise YamlError(f"is not YAML: {' '.join(str(error).split())}") from None


def _documents(loader: _Loader) -> Iterator[Document]:
    while loader.check_node() and (node := loader.get_node()):
        lines: dict[Path, int] = {(): node.start_mark.line + 1}
        lines.update(_lines(node, (), []))
        value = loader.construct_document(node)
        if value is not None:
            yield Document(value, lines)


def _lines(node: yaml.Node, path: Path, around: list[yaml.Node]) -> Iterator[tuple[Path, int]]:
    """The line of each field below a node; refuses keys that kubectl refuses."""
    line = node.start_mark.line + 1
    if any(node is outer for outer in around):
        raise YamlError("an anchor (&) contains itself: write the value out", line)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _lines(item, (*path, index), [*around, node])
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == f"{_TAG}merge":
                continue
            if key.tag != f"{_TAG}str":
                raise YamlError(f"the key {_written(key)} is no text: put it in quotes", line)
            if key.value in seen:
                where = ".".join(map(str, (*path, key.value)))
                raise YamlError(
                    f"{where}: written twice, first on line {seen[key.value]}: remove one", line
                )
            seen[key.value] = line
            yield (*path, key.value), line
            yield from _lines(value, (*path, key.value), [*around, node])


def _written(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "that is a list or mapping"
