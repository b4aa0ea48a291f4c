"""What a version cannot express, as differences that an annotation keeps.

A conversion from one version to the other and back gives a *normal form*, which may differ from the
original. The differences are kept. They are applied again after the conversion back. A difference
is dropped if the field has another value by then, because a user has changed it.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
_UNION = "type"
"""The discriminator of a union: such objects change as a whole, as lists do."""
_MAX_KEPT = 1000
"""Maximum number of differences that are read, so that a user's annotation costs little."""


@dataclass(frozen=True)
class Difference:
    """One field, by its path, in the normal form and in the original. Missing: no value."""

    path: tuple[str, ...]
    normal: tuple[Any, ...]
    original: tuple[Any, ...]
    """One element, or none if the field is missing."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON. In Python, `1 == True`."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def differences(normal: Json, original: Json) -> list[Difference]:
    """Return what to change in `normal` to get `original`."""
    return list(_differences(normal, original, ()))


def _differences(normal: Json, original: Json, path: tuple[str, ...]) -> Iterator[Difference]:
    for key in sorted({*normal, *original}):
        before = (normal[key],) if key in normal else ()
        after = (original[key],) if key in original else ()
        if same(before, after):
            continue
        if before and after and _divisible(before[0]) and _divisible(after[0]):
            yield from _differences(before[0], after[0], (*path, key))
        else:
            yield Difference((*path, key), before, after)


def _divisible(value: Any) -> bool:
    return isinstance(value, dict) and _UNION not in value


def restored(
    current: Json, kept: Sequence[Difference], keeps_meaning: Callable[[Json], bool]
) -> Json:
    """Return an object with the differences that still apply.

    Args:
        current: the normal form, in which a user may have changed fields.
        kept: differences of the original.
        keeps_meaning: whether the result still means what `current` means. So an annotation that a
            user has edited cannot change an object, and fields that belong together stay so.
    """
    applicable = [one for one in kept if same(_at(current, one.path), list(one.normal))]
    whole = _applied(current, applicable)
    if keeps_meaning(whole):
        return whole
    result = current
    for one in applicable:
        candidate = _applied(result, [one])
        if keeps_meaning(candidate):
            result = candidate
    return result


def _at(value: Any, path: Iterable[str]) -> list[Any]:
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    return [value]


def _applied(current: Json, changes: Iterable[Difference]) -> Json:
    result = copy.deepcopy(current)
    for one in changes:
        *parents, last = one.path
        found = _at(result, parents)
        if not found or not isinstance(found[0], dict):
            continue
        found[0].pop(last, None)
        if one.original:
            found[0][last] = copy.deepcopy(one.original[0])
    return result


def to_text(kept: Iterable[Difference]) -> str:
    """Return differences as the value of an annotation."""
    rows = [
        {
            "path": list(one.path),
            **({"normal": one.normal[0]} if one.normal else {}),
            **({"original": one.original[0]} if one.original else {}),
        }
        for one in kept
    ]
    return json.dumps(rows, sort_keys=True, separators=(",", ":"))


def parse(text: Any) -> list[Difference]:
    """Return the differences of an annotation. Empty: it has none, or somebody has broken it."""
    try:
        rows = json.loads(text)
        found = [
            Difference(tuple(row["path"]), _field(row, "normal"), _field(row, "original"))
            for row in rows[:_MAX_KEPT]
        ]
    except (ValueError, TypeError, KeyError, RecursionError):
        return []
    texts = all(one.path and all(isinstance(key, str) for key in one.path) for one in found)
    return found if texts else []


def _field(row: Json, name: str) -> tuple[Any, ...]:
    return (row[name],) if name in row else ()
