"""JSON and texts of the API server. A start reads long lists, so this is msgspec."""

from __future__ import annotations

import sys
from typing import Any

import msgspec

Json = dict[str, Any]
_Parts = dict[str, msgspec.Raw]

_OBJECTS = msgspec.json.Decoder(list[_Parts] | None)
_PARTS = msgspec.json.Decoder(_Parts)
_OBJECT = msgspec.json.Decoder(Json)
_ANY = msgspec.json.Decoder()

_NEVER_FREED = ((3, 12), (3, 12, 7))
"""From the first to before the second of these versions, Python never frees an interned string."""

encode = msgspec.json.encode
"""Return a value as JSON."""


def shared(text: str) -> str:
    """Return the first text that equals this one, if Python frees it when nothing uses it."""
    first, fixed = _NEVER_FREED
    return text if first <= sys.version_info[:3] < fixed else sys.intern(text)


def decode(data: bytes) -> Json:
    """Return an object. Raises ValueError: it is none."""
    try:
        return _OBJECT.decode(data)
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def decode_list(data: bytes) -> Json:
    """Return a list whose "items" can be iterated once. Raises ValueError: it is no object.

    Objects lack their `managedFields`: these are half of the text of objects that were applied on
    the server side, and the operator does not use them. The iteration builds one object at a time,
    because many at once would keep the garbage collector busy. A response without items, such as
    an error, has an empty iteration.
    """
    try:
        page = _PARTS.decode(data)
        items = _OBJECTS.decode(page.pop("items", b"null")) or []
        return {**_decoded(page), "items": map(_without_managed_fields, items)}
    except msgspec.DecodeError as error:
        raise ValueError(str(error)) from error


def _without_managed_fields(parts: _Parts) -> Json:
    meta = _PARTS.decode(parts.pop("metadata"))
    meta.pop("managedFields", None)
    return {**_decoded(parts), "metadata": _decoded(meta)}


def _decoded(parts: _Parts) -> Json:
    return {key: _ANY.decode(value) for key, value in parts.items()}
