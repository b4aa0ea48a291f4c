"""Messages about invalid resources, for the user who wrote the YAML.

pydantic reports the field and the kind of error. The JSON schema of the resource has the valid
values of the field. This module combines both into one line per problem: the field, what is wrong,
and what to do.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel, ValidationError

from distributed_input.api.resource.base import unwrapped
from distributed_input.api.resource.input import DistributedInput
from distributed_input.api.resource.yaml_lines import FieldPath

Schema = dict[str, Any]

_MAX_VALUE_LENGTH = 40
"""Maximum number of characters of an invalid value in a message."""


class ResourceError(ValueError):
    """The YAML has no valid DistributedInput. The user must change the file.

    Attributes:
        problems: one line per problem, starting with file and line if they are known.
        located: the problems of fields, in the same order. Empty: the problem is the whole file.
    """

    def __init__(self, *problems: str | LocatedProblem) -> None:
        self.problems = tuple(map(str, problems))
        self.located = tuple(one for one in problems if isinstance(one, LocatedProblem))
        super().__init__("\n".join(self.problems))


@dataclass(frozen=True)
class Problem:
    """A problem of one field."""

    path: FieldPath
    """The field, with its names in YAML."""
    text: str
    """What is wrong and what to do."""

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


@dataclass(frozen=True)
class LocatedProblem:
    """A problem of one field in a text."""

    source: str
    """Name of the text."""
    line: int | None
    problem: Problem

    @property
    def field(self) -> str:
        """The field, as in error messages. Empty: the whole document."""
        return dotted(self.problem.path)

    def __str__(self) -> str:
        return f"{place(self.source, self.line)}: {self.problem}"


def place(source: str, line: int | None) -> str:
    """Return a line of a text, as in error messages."""
    return source if line is None else f"{source}:{line}"


def dotted(path: Sequence[str | int]) -> str:
    """Return `("spec", "env", 0)` as `spec.env[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(parts).removeprefix(".")


def problems(error: ValidationError, model: type[BaseModel] = DistributedInput) -> list[Problem]:
    """Return all problems that pydantic found in an object of a model."""
    return [_problem(detail, model) for detail in error.errors(include_url=False)]


def _problem(detail: Any, model: type[BaseModel]) -> Problem:
    path: FieldPath = detail["loc"]
    kind: str = detail["type"]
    context = detail.get("ctx", {})
    if kind == "problem":
        return Problem((*path, *context["at"]), context["text"])
    if kind == "extra_forbidden":
        return Problem(path, _unknown_field(path, model))
    schema = _schema_at(path, model)
    if kind == "missing":
        return Problem(path, f"is missing: set it to {_expected(schema)}")
    return Problem(path, f"must be {_expected(schema)}, not {_shown(detail['input'], schema)}")


def _unknown_field(path: FieldPath, model: type[BaseModel]) -> str:
    """Return the message for an unknown field, with a similar field or all valid fields."""
    name, known = str(path[-1]), list(_schema_at(path[:-1], model).get("properties", {}))
    text = f"unknown field {name!r}"
    spelling = {field.lower(): field for field in known}
    plain = name.lower().replace("_", "")
    close = difflib.get_close_matches(plain, spelling, n=1, cutoff=0.7)
    elsewhere = [dotted(place) for place in _all_paths(model) if place[-1] == name]
    if close and (not elsewhere or close[0] == plain):
        return f"{text}: did you mean {spelling[close[0]]!r}?"
    if elsewhere:
        return f"{text}: move it to {' or '.join(elsewhere)}"
    return f"{text}: the valid fields are {', '.join(known)}"


def _expected(schema: Schema) -> str:
    """Return the valid values of a field as a noun phrase, with an example if there is one."""
    examples = schema.get("examples", [schema["default"]] if schema.get("default") else [])
    example = f", for example {examples[0]!r}" if examples else ""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if schema.get("type") == "integer":
        return f"an integer {_bounds(schema)}{example}"
    if schema.get("type") == "boolean":
        return "true or false"
    if schema.get("type") == "array":
        return "a list of mappings"
    if schema.get("type") == "object":
        names = ", ".join(schema.get("properties", {}))
        return f"a mapping{f' with the fields {names}' if names else ' of names to values'}"
    return f"text{example}" if schema.get("minLength", 0) == 0 else f"non-empty text{example}"


def _bounds(schema: Schema) -> str:
    low, high = schema.get("minimum"), schema.get("maximum")
    if high is None or high > 10**9:
        return f"of at least {low}"
    return f"from {low} to {high}"


def _shown(value: Any, schema: Schema) -> str:
    """Return an invalid value as JSON, with a remedy if only its quotes are wrong."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:
        text = str(value)
    if len(text) > _MAX_VALUE_LENGTH:
        text = f"{text[:_MAX_VALUE_LENGTH]}…"
    if schema.get("type") == "integer" and isinstance(value, str) and value.strip("-").isdigit():
        return f"the text {text}: remove the quotes"
    plain_text = schema.get("type") == "string" and "enum" not in schema and "const" not in schema
    if plain_text and isinstance(value, bool | int | float):
        return f"{text}: put it in quotes"
    return text


@functools.cache
def _root(model: type[BaseModel]) -> Schema:
    return model.model_json_schema()


def _schema_at(path: FieldPath, model: type[BaseModel]) -> Schema:
    """Return the schema of a field, or an empty one for a field inside free-form JSON."""
    root = _root(model)
    schema = unwrapped(root, root["$defs"])
    for step in path:
        found = schema.get("properties", {}).get(step)
        if found is None:
            found = schema.get("items" if isinstance(step, int) else "additionalProperties")
        schema = unwrapped(found, root["$defs"]) if isinstance(found, dict) else {}
    return schema


def _all_paths(model: type[BaseModel], path: FieldPath = ()) -> Iterator[FieldPath]:
    """Yield the path of every field of the resource, and of the first element of each list."""
    schema = _schema_at(path, model)
    if "items" in schema:
        yield from _all_paths(model, (*path, 0))
    for name in schema.get("properties", {}):
        yield (*path, name)
        yield from _all_paths(model, (*path, name))
