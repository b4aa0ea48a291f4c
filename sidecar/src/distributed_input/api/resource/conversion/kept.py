"""What a version cannot express, as differences that an annotation keeps.

A conversion from one version to the other and back gives a *normal form*, which may differ from the
original. The differences are kept. They are applied again after the conversion back.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

Json = dict[str, Any]
FieldPath = tuple[str, ...]
_MAX_KEPT = 64
"""Maximum number of differences. If there are more, whole sections are kept instead."""
_DEPTHS = (32, 3, 2)
"""Maximum lengths of a difference's path, from fine to coarse."""
_MAX_LEVELS = 64
"""Maximum nesting of one difference, as JSON."""
MAX_BYTES = 200 << 10
"""Maximum size of an annotation that is read or written. The API server's limit for all annotations
of an object is 256 KiB."""
_CHECKED_BYTES = 1 << 20
"""Maximum number of bytes of objects that `restored` checks, after its first check."""
_MAX_INTEGER = 2**63


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


def differences(normal: Json, original: Json) -> list[Difference]:
    """Return what to change in `normal` to get `original`. Lists change as a whole."""
    found: list[Difference] = []
    for depth in _DEPTHS:
        found = list(_differences(normal, original, (), depth))
        if len(found) <= _MAX_KEPT:
            break
    return found


def _differences(normal: Json, original: Json, path: FieldPath, depth: int) -> Iterator[Difference]:
    for key in sorted({*normal, *original}):
        before: tuple[Any, ...] = (normal[key],) if key in normal else ()
        after: tuple[Any, ...] = (original[key],) if key in original else ()
        if before and after and before[0] is after[0]:
            continue
        sections = before and after and isinstance(before[0], dict) and isinstance(after[0], dict)
        if sections and len(path) + 1 < depth:
            yield from _differences(before[0], after[0], (*path, key), depth)
        elif not same(before, after):
            yield Difference((*path, key), after)


def restored(
    current: Json, kept: Sequence[Difference], keeps_meaning: Callable[[Json], bool]
) -> Json:
    """Return an object with the differences that still apply.

    If they do not apply together, each half is tried alone, and so on. The number of checks is
    limited by the object's size. Differences that are not checked are lost.

    Args:
        current: the normal form, in which a user may have changed fields.
        kept: differences of the original.
        keeps_meaning: whether the result still means what `current` means. So a difference does not
            outlive a change of its field, and an annotation that a user has edited cannot change
            an object.
    """
    if not kept:
        return current
    result, parts = current, [list(kept)]
    size = len(json.dumps([current, [one.original for one in kept]]))
    for _ in range(1 + _CHECKED_BYTES // size):
        if not parts:
            break
        part = parts.pop()
        candidate = _applied(result, part)
        half = len(part) // 2
        if keeps_meaning(candidate):
            result = candidate
        elif half:
            parts += [part[half:], part[:half]]
    return result


def at(value: Any, path: Iterable[str]) -> list[Any]:
    """Return the value of a field as the only element. Empty: it is missing."""
    for key in path:
        if not isinstance(value, dict) or key not in value:
            return []
        value = value[key]
    return [value]


def _applied(current: Json, changes: Iterable[Difference]) -> Json:
    for one in changes:
        current = _changed(current, one.path, one.original)
    return current


def _changed(section: Json, path: FieldPath, original: tuple[Any, ...]) -> Json:
    """Return a section with another value of a field. The argument does not change."""
    key, *rest = path
    if not rest:
        others = {name: value for name, value in section.items() if name != key}
        return {**others, **({key: original[0]} if original else {})}
    if not isinstance(section.get(key), dict):
        return section
    return {**section, key: _changed(section[key], tuple(rest), original)}


def to_text(kept: Iterable[Difference], room: int = MAX_BYTES) -> str | None:
    """Return differences as the value of an annotation. None: there are none.

    Args:
        kept: the differences. Those that are nested too deeply to be read are left out.
        room: maximum size in bytes. A difference that exceeds it is left out.
    """
    texts = []
    room -= len("[]")
    for one in kept:
        row = {
            "path": list(one.path),
            **({"value": one.original[0]} if one.original else {}),
            **({"seen": one.seen} if one.seen else {}),
        }
        text = json.dumps(row, sort_keys=True, separators=(",", ":"))
        if len(text) < room and _is_shallow(row):
            texts.append(text)
            room -= len(text) + len(",")
    return f"[{','.join(texts)}]" if texts else None


def parse(text: Any) -> list[Difference]:
    """Return the differences of an annotation. Empty: it has none, or somebody has broken it."""
    if not isinstance(text, str) or len(text) > MAX_BYTES:
        return []
    try:
        rows = json.loads(text, parse_constant=_finite, parse_float=_finite, parse_int=_integer)
        found = [
            Difference(
                tuple(row["path"]),
                (row["value"],) if "value" in row else (),
                row.get("seen", ""),
            )
            for row in rows[:_MAX_KEPT]
            if _is_shallow(row)
        ]
    except (AttributeError, KeyError, TypeError, ValueError, RecursionError):
        return []
    texts = all(one.path and all(isinstance(key, str) for key in one.path) for one in found)
    return [one for one in found if len(one.path) <= _DEPTHS[0]] if texts else []


def _is_shallow(value: Any) -> bool:
    level = [value]
    for _ in range(_MAX_LEVELS):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return True
    return False


def _finite(text: str) -> float:
    """Return a number that the API server can read, too."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"not a number of JSON: {text}")
    return number


def _integer(text: str) -> int:
    number = int(text)
    if abs(number) >= _MAX_INTEGER:
        raise ValueError("not an integer with 64 bits")
    return number
