"""What is wrong with a resource, in words for the person who wrote it.

pydantic says which field and what kind of mistake; the resource's own JSON schema says what
the field takes. From both comes one line a mistake: where, what is wrong, what to do.
"""

from __future__ import annotations

import difflib
import functools
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError

from distributed_input.api.resource.input import DistributedInput

Schema = dict[str, Any]
Path = tuple[str | int, ...]

_SHOWN = 40  # characters of a wrong value


class ResourceError(ValueError):
    """A DistributedInput that cannot be used: the file must be changed.

    Attributes:
        problems: one line each, with file and line where they are known.
    """

    def __init__(self, *problems: str) -> None:
        super().__init__("\n".join(problems))
        self.problems = problems


@dataclass(frozen=True)
class Problem:
    """One mistake: the field as it is written in YAML, and what to do about it."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{dotted(self.path)}: {self.text}" if self.path else self.text


def dotted(path: Sequence[str | int]) -> str:
    """`("spec", "workers", "replicas")` as `spec.workers.replicas`; an index as `[0]`."""
    parts = [f"[{step}]" if isinstance(step, int) else f".{step}" for step in path]
    return "".join(parts).removeprefix(".")


def problems(error: ValidationError) -> list[Problem]:
    """Every mistake that pydantic found in a DistributedInput."""
    return [_problem(detail) for detail in error.errors(include_url=False)]


def _problem(detail: Any) -> Problem:
    path: Path = detail["loc"]
    kind: str = detail["type"]
    context = detail.get("ctx", {})
    if kind == "problem":
        return Problem((*path, *context["at"]), context["text"])
    if kind == "extra_forbidden":
        return Problem(path, _unknown(path))
    schema = _schema_at(path)
    if kind == "missing":
        return Problem(path, f"is missing: it takes {_takes(schema)}")
    return Problem(path, f"takes {_takes(schema)}, not {_shown(detail['input'], schema)}")


def _unknown(path: Path) -> str:
    """For a field that nothing knows: the one that was meant, or all that there are."""
    name, known = str(path[-1]), list(_schema_at(path[:-1]).get("properties", {}))
    text = f"unknown field {name!r}"
    spelling = {field.lower(): field for field in known}
    close = difflib.get_close_matches(name.lower().replace("_", ""), spelling, n=1, cutoff=0.7)
    if close:
        return f"{text}: did you mean {spelling[close[0]]!r}?"
    elsewhere = [dotted(place) for place in _places() if place[-1] == name]
    if elsewhere:
        return f"{text} here: it belongs at {' or '.join(elsewhere)}"
    return f"{text}: the fields here are {', '.join(known)}"


def _takes(schema: Schema) -> str:
    """What a field takes, as a noun phrase with an example."""
    examples = schema.get("examples", [schema["default"]] if schema.get("default") else [])
    example = f", such as {examples[0]!r}" if examples else ""
    if "const" in schema:
        return json.dumps(schema["const"])
    if "enum" in schema:
        return f"one of {', '.join(map(str, schema['enum']))}"
    if schema.get("type") == "integer":
        return f"a whole number {_bounds(schema)}{example}"
    if schema.get("type") == "boolean":
        return "true or false"
    if schema.get("type") == "array":
        return "a list of mappings"
    if schema.get("type") == "object":
        names = ", ".join(schema.get("properties", {}))
        return f"a mapping{f' with the fields {names}' if names else ' of names to values'}"
    return f"text{example}" if schema.get("minLength", 0) == 0 else f"text, not empty{example}"


def _bounds(schema: Schema) -> str:
    least, most = schema.get("minimum"), schema.get("maximum")
    if most is None or most > 10**9:
        return f"of at least {least}"
    return f"from {least} to {most}"


def _shown(value: Any, schema: Schema) -> str:
    """A wrong value as it looks in YAML, with the remedy where quotes are what is wrong."""
    try:
        text = json.dumps(value, default=str, ensure_ascii=False)
    except ValueError:
        text = str(value)
    if len(text) > _SHOWN:
        text = f"{text[:_SHOWN]}…"
    if schema.get("type") == "integer" and isinstance(value, str) and value.strip("-").isdigit():
        return f"the text {text}: take the quotes away"
    plain_text = schema.get("type") == "string" and "enum" not in schema and "const" not in schema
    if plain_text and isinstance(value, bool | int | float):
        return f"{text}: put it in quotes"
    return text


@functools.cache
def _root() -> Schema:
    return DistributedInput.model_json_schema()


def _resolved(schema: Schema) -> Schema:
    """A schema without the wrapping of optional and of named ones; the wrapper's words win."""
    if "x-kubernetes-int-or-string" in schema:
        return schema
    words = {key: schema[key] for key in schema if key not in {"anyOf", "allOf", "$ref"}}
    if "$ref" in schema:
        named = _root()["$defs"][schema["$ref"].rpartition("/")[2]]
        return _resolved({**named, **words})
    for part in schema.get("anyOf", []) + schema.get("allOf", []):
        if part.get("type") != "null":
            return _resolved({**part, **words})
    return schema


def _schema_at(path: Path) -> Schema:
    """The schema of a field; of the nearest one that has a schema where it is inside free JSON."""
    schema = _resolved(_root())
    for step in path:
        properties = schema.get("properties", {})
        if step in properties:
            schema = _resolved(properties[step])
        else:
            extra = schema.get("additionalProperties")
            schema = _resolved(extra) if isinstance(extra, dict) else {}
    return schema


def _places(path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Every field that there is, by its path."""
    for name in _schema_at(path).get("properties", {}):
        yield (*path, name)
        yield from _places((*path, name))
