"""The result of a run as values, as text and as JSON: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import InputStats, Totals, rows_by_address

_RATE_SECONDS = 1.0
"""Shortest time of reading that shows a rate."""
VERSION = 1
"""Version of the JSON layout. New versions of this program only add fields."""


@dataclass(frozen=True)
class ProcessReport:
    """One process or trainer, over all its starts."""

    name: str
    peak_bytes: int
    """Peak resident memory, sampled twice a second; 0: unknown."""
    restarts: int = 0
    addresses: tuple[str, ...] = ()
    """host:port of each start, if it has one."""


@dataclass(frozen=True)
class WorkerShare:
    """The rows of one worker, and the seconds that it was busy."""

    name: str
    rows: int
    busy: float


@dataclass(frozen=True)
class InputReport:
    """One input. Times in seconds, stall from 0 to 1."""

    name: str
    totals: Totals
    rows_per_second: float | None
    """None: the trainers read for too short a time, or one batch only."""
    workers: tuple[WorkerShare, ...]
    warnings: tuple[str, ...] = ()
    """What the workers or trainers reported about its dataset and settings."""
    row: str = "row"
    """What a row is: see `InputStats`."""


@dataclass(frozen=True)
class RunReport:
    """A whole run."""

    status: int
    """The runner's exit status."""
    cause: str
    """Why the run ended before the trainers; empty if the trainers ended by themselves."""
    seconds: float
    """Seconds from the trainers' start to their end."""
    inputs: tuple[InputReport, ...]
    processes: tuple[ProcessReport, ...]


def summarize_input(
    name: str, stats: InputStats, workers: Sequence[ProcessReport], trainers: int, seconds: float
) -> InputReport:
    """Summarize one input. The rate is over the time since the trainers' first batch."""
    totals = stats.totals()
    by_address = rows_by_address(stats)
    shares = []
    for worker in workers:
        starts = [by_address.get(address, (0, 0.0)) for address in worker.addresses]
        rows, busy = sum(rows for rows, _ in starts), sum(busy for _, busy in starts)
        shares.append(WorkerShare(worker.name, rows, busy))
    rate = _rate(totals, trainers, seconds)
    return InputReport(name, totals, rate, tuple(shares), tuple(stats.warnings), stats.row)


def _rate(totals: Totals, trainers: int, seconds: float) -> float | None:
    """Return the rows per second of all trainers, or None if they have read too little."""
    running = totals.wall / trainers or seconds
    if totals.rows and (running < _RATE_SECONDS or totals.batches <= trainers):
        return None
    return totals.rows / running if running > 0 else 0.0


def as_text(report: RunReport) -> str:
    """Return the report as text."""
    lines = [_input_line(one) for one in report.inputs]
    shares = {share.name: share for one in report.inputs for share in one.workers}
    rows = [("process", "rows", "busy", "restarts", "peak memory")]
    for process in report.processes:
        share = shares.get(process.name)
        rows.append(
            (
                process.name,
                f"{share.rows}" if share else "",
                f"{share.busy:.1f} s" if share else "",
                str(process.restarts or ""),
                formatting.memory(process.peak_bytes) if process.peak_bytes else "?",
            )
        )
    notes = [note for one in report.inputs if (note := _unread_note(one))]
    notes += [f"{one.name}: warning: {text}" for one in report.inputs for text in one.warnings]
    head, tail = ("".join(f"  {line}\n" for line in part) for part in (lines, notes))
    return head + formatting.table(rows) + tail


def _unread_note(one: InputReport) -> str:
    """Return why the workers made more rows than the trainers read; empty if they did not."""
    more = sum(share.rows for share in one.workers) - one.totals.rows
    if more <= 0:
        return ""
    return (
        f"{one.name}: the workers sent {_plural(more, one.row)} that the trainer did not read: "
        "those read ahead, also of the next epoch, and those sent again after a restart"
    )


def _input_line(one: InputReport) -> str:
    totals = one.totals
    if not totals.epochs:
        return f"{one.name}: the trainer read no {one.row}s"
    fields = [
        _plural(totals.epochs, "epoch"),
        f"{_plural(totals.rows, one.row)} in {_plural(totals.batches, 'batch', 'batches')}",
        "too short for a rate"
        if one.rows_per_second is None
        else f"{formatting.rate(one.rows_per_second)} {one.row}s/s",
        f"stall {totals.stall:.1%}",
    ]
    if totals.mismatches:
        fields.append(f"replay mismatches {totals.mismatches}")
    return f"{one.name}: " + ", ".join(fields)


def _plural(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_json(report: RunReport) -> dict[str, Any]:
    """Return the report as JSON values. The fields' names contain their units."""
    return {
        "version": VERSION,
        "status": report.status,
        "cause": report.cause or None,
        "wall_seconds": round(report.seconds, 3),
        "inputs": {one.name: _input_json(one) for one in report.inputs},
        "processes": {
            one.name: {"restarts": one.restarts, "peak_rss_bytes": one.peak_bytes or None}
            for one in report.processes
        },
    }


def _input_json(one: InputReport) -> Mapping[str, Any]:
    totals = one.totals
    return {
        "epochs": totals.epochs,
        "rows": totals.rows,
        "row": one.row,
        "batches": totals.batches,
        "rows_per_second": None if one.rows_per_second is None else round(one.rows_per_second, 3),
        "wait_seconds": round(totals.wait, 3),
        "iterating_seconds": round(totals.wall, 3),
        "stall": round(totals.stall, 6),
        "replay_mismatches": totals.mismatches,
        "warnings": list(one.warnings),
        "workers": {
            share.name: {"rows": share.rows, "busy_seconds": round(share.busy, 3)}
            for share in one.workers
        },
    }
