"""The records that splits left out, as workers report them."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from distributed_input.api.proto import types_pb2
from distributed_input.api.stalls import MAX_SHOWN, key_of

_MAX_KNOWN = 200_000
_MAX_TEXT = 1024


class SkipLedger:
    """The last records, and the number of all. A record counts once, however often it is reported.

    Workers report again what they know, so a dispatcher that starts empty learns it.
    """

    def __init__(self) -> None:
        self._last: deque[types_pb2.SkippedRecord] = deque(maxlen=MAX_SHOWN)
        self._known: dict[int, None] = {}
        self.count = 0

    def latest(self, most: int) -> list[types_pb2.SkippedRecord]:
        """Return the last records, at most `most` and at most 1,000, the latest at the end."""
        return list(self._last)[max(0, len(self._last) - most) :]

    def add(self, records: Iterable[types_pb2.SkippedRecord]) -> None:
        """Add records, except those that are known."""
        for record in records:
            key = hash(key_of(record))
            if key in self._known or max(map(len, (record.file, record.error))) > _MAX_TEXT:
                continue
            if len(self._known) >= _MAX_KNOWN:
                self._known.pop(next(iter(self._known)))
            self._known[key] = None
            self._last.append(record)
            self.count += 1
