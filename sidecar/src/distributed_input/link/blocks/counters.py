"""Counters of streams, for metrics, heartbeats and the batch size of the next split."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass


@dataclass
class StreamCounters:
    """What a stream has done so far.

    Attributes:
        rows: rows sent, or produced if the counters are of a producer.
        bytes: bytes of these rows.
        busy_seconds: time spent producing rows.
        replayed_rows: rows before the start of the stream that were produced again.
        stall_seconds: time that encoded blocks waited to be sent.
        shared_rows: rows sent that another stream produced.
    """

    rows: int = 0
    bytes: int = 0
    busy_seconds: float = 0.0
    replayed_rows: int = 0
    stall_seconds: float = 0.0
    shared_rows: int = 0


def sum_counters(parts: Iterable[StreamCounters]) -> StreamCounters:
    """Return the sum of several streams' counters."""
    total = StreamCounters()
    for part in parts:
        for name, value in vars(part).items():
            setattr(total, name, getattr(total, name) + value)
    return total
