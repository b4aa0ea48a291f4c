"""What a version cannot express, as differences that an annotation keeps.

A conversion from one version to the other and back gives a *normal form*, which may differ from the
original. The differences are kept. They are applied again after the conversion back.
"""

from __future__ import annotations

import copy
import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
FieldPath = tuple[str, ...]
_MAX_KEPT = 1000
"""Maximum number of differences that are read, so that a user's annotation costs little."""


@dataclass(frozen=True)
class Difference:
    """One field of the original that differs from the normal form."""

    path: FieldPath
    original: tuple[Any, ...]
    """One element, or none if the original has no such field."""
    seen: str = ""
    """Digest of the converted fields that the difference belongs to. Empty: no others."""


def same(one: Any, other: Any) -> bool:
    """Whether two values are equal as JSON. In Python, `1 == True`."""
    return json.dumps(one, sort_keys=True) == json.dumps(other, sort_keys=True)


def digest(value: Any) -> str:
    """Return a short hash of a JSON value."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:16]


def differences(normal: Json, original: Json) -> Iterator[Difference]:
    """Yield what to change in `normal` to get `original`. Lists change as a whole."""
    yield from _differences(normal, original, ())


def _differences(normal: Json, original: Json, path: FieldPath) -> Iterator[Difference]:
    for key in sorted({*normal, *original}):
        before = (normal[key],) if key in normal else ()
        after = (original[key],) if key in original else ()
        if same(before, after):
            continue
        if before and after and isinstance(before[0], dict) and isinstance(after[0], dict):
            yield from _differences(before[0], after[0], (*path, key))
        else:
            yield Difference((*path, key), after)


def restored(
    current: Json, kept: Sequence[Difference], keeps_meaning: Callable[[Json], bool]
) -> Json:
    """Return an object with the differences that still apply.

    Args:
        current: the normal form, in which a user may have changed fields.
        kept: differences of the original.
        keeps_meaning: whether the result still means what `current` means. So a difference does not
            outlive a change of its field, and an annotation that a user has edited cannot change
            an object.
    """
    whole = _applied(current, kept)
    if keeps_meaning(whole):
        return whole
    result = current
    for one in kept:
        candidate = _applied(result, [one])
        if keeps_meaning(candidate):
            result = candidate
    return result


def at(value: Any, path: Iterable[str]) -> list[Any]:
    """Return the value of a field as the only element. Empty: it is missing."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    return [value]


def _applied(current: Json, changes: Iterable[Difference]) -> Json:
    result = copy.deepcopy(current)
    for one in changes:
        *parents, last = one.path
        found = at(result, parents)
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
            **({"value": one.original[0]} if one.original else {}),
            **({"seen": one.seen} if one.seen else {}),
        }
        for one in kept
    ]
    return json.dumps(rows, sort_keys=True, separators=(",", ":"))


def parse(text: Any) -> list[Difference]:
    """Return the differences of an annotation. Empty: it has none, or somebody has broken it."""
    try:
        found = [
            Difference(
                tuple(row["path"]),
                (row["value"],) if "value" in row else (),
                row.get("seen", ""),
            )
            for row in json.loads(text)[:_MAX_KEPT]
        ]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []
    texts = all(one.path and all(isinstance(key, str) for key in one.path) for one in found)
    return found if texts else []
