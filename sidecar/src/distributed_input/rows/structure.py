"""Nested structures, which hold the leaves of an element.

A structure is a dict (with string or integer keys), tuple, list, namedtuple, None, or the number of
a leaf. Leaves are numbered in the order of `tf.nest`: dicts in the order of their sorted keys, and
None has no leaf.
"""

from __future__ import annotations

import collections
import functools
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from distributed_input.api.errors import SpecError

Structure: TypeAlias = Any  # dict | tuple | list | namedtuple | None | int, nested


def is_namedtuple(value: object) -> bool:
    """Return whether a value is of a `collections.namedtuple` or `typing.NamedTuple` class."""
    return isinstance(value, tuple) and hasattr(type(value), "_fields")


@functools.lru_cache(maxsize=256)
def _namedtuple_class(name: str, fields: tuple[str, ...]) -> Any:
    return collections.namedtuple(name, fields)


def build(
    value: Any,
    leaf: Callable[[str, Any], int],
    *,
    is_none: Callable[[Any], bool] = lambda value: value is None,
    list_is_leaf: bool = False,
    path: str = "",
) -> Structure:
    """Return the structure of `value`.

    Args:
      value: a nested value.
      leaf: called with the path and value of each leaf; returns the number of the leaf.
      is_none: returns whether a value counts as None.
      list_is_leaf: whether a list is one leaf.
      path: path of `value`, for error messages.

    Raises:
      SpecError: a dict has keys other than strings or integers, or keys of both types.
    """

    def inner(name: object, item: Any) -> Structure:
        below = f"{path}/{name}" if path else str(name)
        return build(item, leaf, is_none=is_none, list_is_leaf=list_is_leaf, path=below)

    if is_none(value):
        return None
    if isinstance(value, Mapping):
        return {key: inner(key, value[key]) for key in _sorted_keys(value, path)}
    if is_namedtuple(value):
        fields = type(value)._fields
        return type(value)(*(inner(f, v) for f, v in zip(fields, value, strict=True)))
    if isinstance(value, tuple):
        return tuple(inner(i, v) for i, v in enumerate(value))
    if isinstance(value, list) and not list_is_leaf:
        return [inner(i, v) for i, v in enumerate(value)]
    return leaf(path, value)


def _sorted_keys(value: Mapping[Any, Any], path: str) -> list[Any]:
    kinds = {type(key) for key in value}
    if not (kinds <= {str} or kinds <= {int}):
        raise SpecError(
            f"component {path or 'of the element'!r}: keys of a dict must all be strings or all be"
            f" integers, found {sorted(kind.__name__ for kind in kinds)}. Rename them in a map."
        )
    return sorted(value)


def flatten(structure: Structure, value: Any, path: str = "") -> list[Any]:
    """Return the leaves of `value` in their order.

    Raises:
      SpecError: `value` has another structure. Names the component.
    """
    out: list[Any] = []
    _flatten(structure, value, path, out)
    return out


def _flatten(structure: Structure, value: Any, path: str, out: list[Any]) -> None:
    if isinstance(structure, int):
        out.append(value)
        return
    if structure is None:
        if value is not None:
            raise SpecError(f"component {path!r} is {type(value).__name__}, expected None")
        return
    for name, below, item in _pairs(structure, value, path):
        _flatten(below, item, f"{path}/{name}" if path else str(name), out)


def _pairs(structure: Structure, value: Any, path: str) -> list[tuple[Any, Structure, Any]]:
    label = repr(path) if path else "the element"
    if isinstance(structure, dict):
        if not isinstance(value, Mapping) or set(value) != set(structure):
            found = sorted(map(str, value)) if isinstance(value, Mapping) else type(value).__name__
            raise SpecError(f"{label} must be a dict with keys {list(structure)}, found {found}")
        return [(key, structure[key], value[key]) for key in structure]
    if not isinstance(value, (tuple, list)) or len(value) != len(structure):
        found = f"{len(value)} items" if isinstance(value, (tuple, list)) else type(value).__name__
        kind = "list" if isinstance(structure, list) else "tuple"
        raise SpecError(f"{label} must be a {kind} of {len(structure)} items, found {found}")
    names: Any = getattr(structure, "_fields", range(len(structure)))
    found_names = getattr(value, "_fields", names)
    if is_namedtuple(structure) and found_names != names:
        raise SpecError(
            f"{label} must be a namedtuple of {', '.join(names)}, found {', '.join(found_names)}"
        )
    return list(zip(names, structure, value, strict=True))


def unflatten(structure: Structure, leaves: Callable[[int], Any], none: Any = None) -> Any:
    """Return the structure with `leaves(i)` in place of leaf i, and `none` in place of None."""
    if isinstance(structure, int):
        return leaves(structure)
    if structure is None:
        return none
    if isinstance(structure, dict):
        return {key: unflatten(below, leaves, none) for key, below in structure.items()}
    items = [unflatten(below, leaves, none) for below in structure]
    if is_namedtuple(structure):
        return type(structure)(*items)
    return items if isinstance(structure, list) else tuple(items)


def to_plain(structure: Structure) -> Any:
    """Return the structure as values that JSON supports."""
    if structure is None or isinstance(structure, int):
        return structure
    if isinstance(structure, dict):
        return {"d": [[key, to_plain(below)] for key, below in structure.items()]}
    items = [to_plain(below) for below in structure]
    if is_namedtuple(structure):
        return {"n": [type(structure).__name__, list(type(structure)._fields), items]}
    return {"l": items} if isinstance(structure, list) else {"t": items}


def from_plain(plain: Any) -> Structure:
    """Return the structure that `to_plain` converted.

    Namedtuples become instances of classes that this process creates with the same name and fields.
    """
    if plain is None or isinstance(plain, int):
        return plain
    if "d" in plain:
        return {key: from_plain(below) for key, below in plain["d"]}
    if "n" in plain:
        name, fields, items = plain["n"]
        return _namedtuple_class(name, tuple(fields))(*map(from_plain, items))
    if "l" in plain:
        return [from_plain(below) for below in plain["l"]]
    return tuple(from_plain(below) for below in plain["t"])
