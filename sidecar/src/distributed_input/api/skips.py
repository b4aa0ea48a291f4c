"""Texts about records that splits left out, and what identifies such a record."""

from __future__ import annotations

from typing import Any

from distributed_input.api.proto import types_pb2


def key_of(record: types_pb2.SkippedRecord) -> tuple[object, ...]:
    """Return what identifies a record. A replay reports it again."""
    place = record.dataset, record.first_run, record.epoch, record.split
    return (*place, record.step, record.file, record.index)


def skipped_text(record: types_pb2.SkippedRecord) -> str:
    """Return one line about a record that was left out."""
    file = f" of {record.file}" if record.file else ""
    split = "" if record.split < 0 else f", split {record.split}"
    shown = f" ({record.record})" if record.record else ""
    place = f"record {record.index}{file} in {record.step}, epoch {record.epoch}{split}"
    return f"{place}: {record.error}{shown}"


def skipped_value(record: types_pb2.SkippedRecord) -> dict[str, Any]:
    """Return a record that was left out as JSON values. `split` -1: all splits compute it."""
    return {
        "dataset": record.dataset,
        "epoch": record.epoch,
        "split": record.split,
        "step": record.step,
        "index": record.index,
        "file": record.file or None,
        "record": record.record or None,
        "error": record.error,
    }
