"""A record counts once, whichever worker reports it, and however often."""

from __future__ import annotations

from distributed_input.api.proto import types_pb2
from distributed_input.dispatcher.skipped import SkipLedger


def _record(index: int, split: int = 0) -> types_pb2.SkippedRecord:
    return types_pb2.SkippedRecord(dataset="rows", split=split, step="parse", index=index)


def test_a_record_counts_once() -> None:
    ledger = SkipLedger()
    ledger.add([_record(1), _record(2)])
    ledger.add([_record(2), _record(2, split=1)])
    assert ledger.count == len(ledger.latest(9)) == 3


def test_only_the_last_ones_are_kept() -> None:
    ledger = SkipLedger()
    ledger.add(map(_record, range(1200)))
    assert ledger.count == 1200
    assert [one.index for one in ledger.latest(1500)] == list(range(200, 1200))
    assert [one.index for one in ledger.latest(2)] == [1198, 1199]
    assert ledger.latest(0) == []
