"""Parsing of YAML text into DistributedInputs. This module does no I/O."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterable
from typing import Any

from pydantic import ValidationError

from distributed_input.api.resource.input import API_VERSION, GROUP, KIND, DistributedInput
from distributed_input.api.resource.problems import (
    LocatedProblem,
    Problem,
    ResourceError,
    place,
    problems,
)
from distributed_input.api.resource.yaml_lines import Document, YamlError, documents

_MAX_VERSION_LENGTH = 80
Check = Callable[[DistributedInput], Iterable[Problem]]


def no_check(_resource: DistributedInput) -> Iterable[Problem]:
    """Return no problems."""
    return ()


def parse(text: str, source: str = "<text>") -> DistributedInput:
    """Return the only DistributedInput in a YAML text. Documents of other kinds are ignored.

    Raises:
        ResourceError: the text is not YAML, or does not have exactly one valid DistributedInput.
    """
    return only(parse_all(text, source), source)


def parse_all(
    text: str, source: str = "<text>", folder: str | None = None, check: Check = no_check
) -> list[DistributedInput]:
    """Return all DistributedInputs in a YAML text, at least one, in their order.

    A relative `source.path` is joined to `folder`. `check` returns further problems of a resource.

    Raises:
        ResourceError: the text is not YAML, has no DistributedInput, or an invalid one. The error
            has all problems of all documents.
    """
    try:
        all_documents = documents(text)
    except YamlError as error:
        raise ResourceError(f"{place(source, error.line)}: {error}") from None
    inputs = [document for document in all_documents if _is_input(document.value)]
    if not inputs:
        raise ResourceError(
            f"{source}: has no DistributedInput: add a document with `kind: {KIND}`"
        )
    found: dict[tuple[str | None, str], DistributedInput] = {}
    errors: list[LocatedProblem] = []
    for document in inputs:
        try:
            resource = DistributedInput.model_validate(document.value, context={"folder": folder})
        except ValidationError as error:
            found_problems = _unknown_version(document.value) or problems(error)
            errors += [_located(one, document, source) for one in found_problems]
            continue
        key = (resource.metadata.namespace, resource.metadata.name)
        if key in found:
            errors.append(_located(_duplicate(resource), document, source))
        errors += [_located(one, document, source) for one in check(resource)]
        found[key] = resource
    if errors:
        raise ResourceError(*errors)
    return list(found.values())


def only(found: list[DistributedInput], source: str) -> DistributedInput:
    """Return the only element. Raises ResourceError if there are several."""
    if len(found) > 1:
        names = ", ".join(resource.metadata.name for resource in found)
        raise ResourceError(
            f"{source}: has {len(found)} DistributedInputs ({names}): keep exactly one"
        )
    return found[0]


def _unknown_version(document: Any) -> list[Problem]:
    """Return the only problem to report if a document has another version, whose fields differ."""
    if not isinstance(document, dict) or document.get("apiVersion") == API_VERSION:
        return []
    if document.get("apiVersion") is None:
        return [Problem(("apiVersion",), f"is missing: set it to {API_VERSION}")]
    shown = str(document["apiVersion"])[:_MAX_VERSION_LENGTH]
    return [Problem(("apiVersion",), f"{shown!r} is unknown: use {API_VERSION}")]


def _duplicate(resource: DistributedInput) -> Problem:
    name = resource.metadata.name
    return Problem(("metadata", "name"), f"{name!r} is already used: give each input its own name")


def _is_input(value: Any) -> bool:
    """Whether a document is a DistributedInput, or was probably meant to be one.

    A Job or ConfigMap in the same file is ignored. A misspelled kind is not, so that the user gets
    an error for it.
    """
    if not isinstance(value, dict) or "kind" not in value:
        return True
    group = str(value.get("apiVersion", "")).partition("/")[0]
    kinds = [str(value["kind"]).lower()]
    return group == GROUP or bool(difflib.get_close_matches(KIND.lower(), kinds, cutoff=0.8))


def _located(problem: Problem, document: Document, source: str) -> LocatedProblem:
    return LocatedProblem(source, document.line(problem.path), problem)
