"""The state of a split's iterator at a row, as bytes, and its errors and deadline. No TensorFlow.

A saved state is a cache entry that comes from the network or from a file. A checksum finds damaged
bytes before TensorFlow reads them. The key finds states of other datasets, splits, epochs, seeds
and versions of TensorFlow.
"""

from __future__ import annotations

import struct
import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

import xxhash

from distributed_input.rows.prefix import Prefix

KEY_BYTES = 16
_MAGIC = b"DIS3"  # another one for other fields or other row digests
_CHECKSUM_BYTES = 16
_FIELDS = struct.Struct(f"<{KEY_BYTES}sQQI?")  # key, row, digest, rows in an element, inline
_Result = TypeVar("_Result")
_OVERHEAD = len(_MAGIC) + _CHECKSUM_BYTES + _FIELDS.size


class StateError(Exception):
    """A state cannot be saved, or a saved state cannot be used. The split is then replayed."""


class StateTimeoutError(StateError):
    """TensorFlow did not save or restore a state in time. Its iterator may be blocked."""


@dataclass(frozen=True)
class SavedState:
    """The state of a split's iterator at the end of an element.

    Attributes:
        key: identifies the split, and everything that its rows depend on.
        prefix: the rows before the state.
        batch_rows: number of rows in an element for which the dataset was opened.
        data: what the iterator saved.
        inline: whether its maps ran in the thread of the split.
    """

    key: bytes
    prefix: Prefix
    batch_rows: int
    data: bytes
    inline: bool = False


def encode(state: SavedState) -> bytes:
    """Return a state with its checksum."""
    prefix = state.prefix
    how = state.batch_rows, state.inline
    fields = _FIELDS.pack(state.key, prefix.rows, prefix.digest, *how)
    return b"".join([_MAGIC, _checksum(fields, state.data), fields, state.data])


def decode(token: bytes) -> SavedState:
    """Return the state in `token`.

    Raises:
        StateError: `token` is not a state, or is damaged.
    """
    start = len(_MAGIC) + _CHECKSUM_BYTES
    if len(token) < _OVERHEAD or token[: len(_MAGIC)] != _MAGIC:
        raise StateError("it is not a state of this version")
    fields, data = token[start:_OVERHEAD], token[_OVERHEAD:]
    if token[len(_MAGIC) : start] != _checksum(fields, data):
        raise StateError("its checksum is wrong")
    key, row, digest, batch_rows, inline = _FIELDS.unpack(fields)
    return SavedState(key, Prefix(row, digest), batch_rows, data, inline)


def _checksum(fields: bytes, data: bytes) -> bytes:
    found = xxhash.xxh3_128(fields)
    found.update(data)
    return found.digest()


def within(timeout: float, what: str, work: Callable[[], _Result]) -> _Result:
    """Return what `work` returns. It runs in another thread, which goes on after the deadline.

    Args:
        timeout: seconds until the deadline.
        what: what `work` does, for the error.
        work: the call.

    Raises:
        StateTimeoutError: it did not return in time.
        Exception: any error of `work`.
    """
    results: list[_Result] = []
    errors: list[Exception] = []

    def run() -> None:
        try:
            results.append(work())
        except Exception as error:  # noqa: BLE001 - raised in the thread that waits
            errors.append(error)

    thread = threading.Thread(target=run, name=what, daemon=True)
    thread.start()
    thread.join(timeout)
    if errors:
        raise errors[0]
    if not results:
        raise StateTimeoutError(f"it took more than {timeout:.0f} s to {what}")
    return results[0]
