"""A YAML parser that reads values as kubectl does and records the line of every field.

PyYAML alone differs from kubectl, so one file would have two meanings. PyYAML reads dates as
objects, 1:30 as 90 and 1e-3 as text, and uses the last of two equal keys.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import yaml

FieldPath = tuple[str | int, ...]
"""The keys and list indices that lead to a field."""

_TAG = "tag:yaml.org,2002:"
_MAX_FIELDS = 100_000
"""Of a document, with those that aliases repeat: nested ones make billions from a few lines.

Those that merge keys (`<<`) repeat count, too.
"""
_MERGE = -1  # in the path of a field that is merged: no field has this name or index
_NUMBER_STARTS = list("-+0123456789.")
_INT = re.compile(r"^[-+]?(0b[01_]+|0[0-7_]+|0x[0-9a-fA-F_]+|0|[1-9][0-9_]*)$")
_FLOAT = re.compile(
    r"^([-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)"
    r"|\.(nan|NaN|NAN))$"
)


class YamlError(Exception):
    """The text is not valid YAML.

    Attributes:
        line: 1-based line of the error, or None if it is unknown.
    """

    def __init__(self, text: str, line: int | None = None) -> None:
        super().__init__(text)
        self.line = line


# Besides its own errors, PyYAML raises these if a tag such as !!int or !!bool does not fit its
# value.
_PARSE_ERRORS = (yaml.YAMLError, ValueError, AttributeError, KeyError, TypeError, RecursionError)


@dataclass(frozen=True)
class Document:
    """A YAML document with the lines of its fields."""

    value: Any
    lines: dict[FieldPath, int]
    """The 1-based line of each field's key."""

    def line(self, path: FieldPath) -> int:
        """Return the line of a field, or of its nearest parent if the field is not in the text."""
        while path and path not in self.lines:
            path = path[:-1]
        return self.lines[path]


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader with other rules for dates and numbers."""


_REPLACED_TAGS = {f"{_TAG}{kind}" for kind in ("timestamp", "int", "float")}
_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag not in _REPLACED_TAGS]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}
_Loader.add_implicit_resolver(f"{_TAG}int", _INT, _NUMBER_STARTS)
_Loader.add_implicit_resolver(f"{_TAG}float", _FLOAT, _NUMBER_STARTS)


def documents(text: str) -> list[Document]:
    """Return all documents of a YAML text, without empty ones.

    Raises:
        YamlError: the text is not YAML, a key occurs twice, or a key is not text.
    """
    try:
        return list(_documents(_Loader(text)))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        details = ", ".join(part for part in (error.context, error.problem) if part)
        details += ": indent with spaces, not tabs" if r"'\t'" in details else ""
        raise YamlError(f"is not YAML: {details}", mark.line + 1 if mark else None) from None
    except _PARSE_ERRORS as error:
        raise YamlError(f"is not YAML: {' '.join(str(error).split())}") from None


def _documents(loader: _Loader) -> Iterator[Document]:
    while loader.check_node() and (node := loader.get_node()):
        lines: dict[FieldPath, int] = {(): node.start_mark.line + 1}
        for count, (path, line) in enumerate(_lines(node, (), []), 1):
            lines[path] = line
            if count > _MAX_FIELDS:
                raise YamlError(f"has more than {_MAX_FIELDS} fields: use fewer aliases (*)", line)
        value = loader.construct_document(node)
        if value is not None:
            yield Document(value, lines)


def _lines(
    node: yaml.Node, path: FieldPath, parents: list[yaml.Node]
) -> Iterator[tuple[FieldPath, int]]:
    """Yield the path and line of each field below a node.

    Fields of merge keys have paths of their own, so that they count.

    Raises:
        YamlError: kubectl would refuse a key.
    """
    line = node.start_mark.line + 1
    if any(node is outer for outer in parents):
        raise YamlError("an anchor (&) contains itself: replace the alias (*) by the value", line)
    if isinstance(node, yaml.SequenceNode):
        for index, item in enumerate(node.value):
            yield (*path, index), item.start_mark.line + 1
            yield from _lines(item, (*path, index), [*parents, node])
    if isinstance(node, yaml.MappingNode):
        seen: dict[str, int] = {}
        for key, value in node.value:
            line = key.start_mark.line + 1
            if key.tag == f"{_TAG}merge":
                yield (*path, _MERGE), line
                yield from _lines(value, (*path, _MERGE), [*parents, node])
                continue
            if key.tag != f"{_TAG}str":
                raise YamlError(f"the key {_key_text(key)} is not text: put it in quotes", line)
            if key.value in seen:
                parts = ("<<" if part == _MERGE else str(part) for part in (*path, key.value))
                field = ".".join(parts)
                raise YamlError(
                    f"{field}: occurs twice, first on line {seen[key.value]}: remove one", line
                )
            seen[key.value] = line
            yield (*path, key.value), line
            yield from _lines(value, (*path, key.value), [*parents, node])


def _key_text(key: yaml.Node) -> str:
    return str(key.value) if isinstance(key, yaml.ScalarNode) else "that is a list or mapping"
