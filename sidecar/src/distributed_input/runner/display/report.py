"""What a run came to, as values, as text and as JSON: pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from distributed_input.runner.display import display
from distributed_input.runner.display.stats import Tally, Totals, rows_by_address

VERSION = 1
"""Of the JSON's layout; fields are only ever added."""


@dataclass(frozen=True)
class Process:
    """One supervised process or trainer, over all its lives."""

    name: str
    peak: int
    """Peak resident memory in bytes, as sampled about once a second; 0: not seen."""
    restarts: int = 0
    addresses: tuple[str, ...] = ()
    """host:port of each life, where it has one."""


@dataclass(frozen=True)
class WorkerShare:
    """What one worker did: its rows, and the seconds it spent on them."""

    name: str
    rows: int
    busy: float


@dataclass(frozen=True)
class InputReport:
    """One input. Times in seconds, stall from 0 to 1."""

    name: str
    totals: Totals
    rows_per_second: float
    workers: tuple[WorkerShare, ...]


@dataclass(frozen=True)
class Report:
    """A whole run."""

    status: int
    """The runner's exit status."""
    cause: str
    """Why the run ended before the trainers did; empty where they ended by themselves."""
    seconds: float
    """From the trainers' start to their end."""
    inputs: tuple[InputReport, ...]
    processes: tuple[Process, ...]


def of_input(
    name: str, tally: Tally, workers: Sequence[Process], trainers: int, seconds: float
) -> InputReport:
    """Sum up one input. Rows a second are over the time since the trainers' first batch."""
    totals = tally.totals()
    by_address = rows_by_address(tally)
    shares = []
    for worker in workers:
        lives = [by_address.get(address, (0, 0.0)) for address in worker.addresses]
        shares.append(
            WorkerShare(worker.name, sum(rows for rows, _ in lives), sum(busy for _, busy in lives))
        )
    running = totals.wall / trainers or seconds
    speed = totals.rows / running if running > 0 else 0.0
    return InputReport(name, totals, speed, tuple(shares))


def as_text(report: Report) -> str:
    """The closing report for people."""
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
                display.memory(process.peak) if process.peak else "?",
            )
        )
    return "".join(f"  {line}\n" for line in lines) + display.table(rows)


def _input_line(one: InputReport) -> str:
    totals = one.totals
    if not totals.epochs:
        return f"{one.name}: the trainer took no rows"
    fields = [
        _plural(totals.epochs, "epoch"),
        f"{_plural(totals.rows, 'row')} in {_plural(totals.batches, 'batch', 'batches')}",
        f"{display.rate(one.rows_per_second)} rows/s",
        f"stall {totals.stall:.1%}",
    ]
    if totals.mismatches:
        fields.append(f"replay mismatches {totals.mismatches}")
    return f"{one.name}: " + ", ".join(fields)


def _plural(number: int, one: str, many: str = "") -> str:
    return f"{number} {one if number == 1 else many or one + 's'}"


def as_json(report: Report) -> dict[str, Any]:
    """The report as plain values; see the fields' names for their units."""
    return {
        "version": VERSION,
        "status": report.status,
        "cause": report.cause or None,
        "wall_seconds": round(report.seconds, 3),
        "inputs": {one.name: _input_json(one) for one in report.inputs},
        "processes": {
            one.name: {"restarts": one.restarts, "peak_rss_bytes": one.peak or None}
            for one in report.processes
        },
    }


def _input_json(one: InputReport) -> Mapping[str, Any]:
    totals = one.totals
    return {
        "epochs": totals.epochs,
        "rows": totals.rows,
        "batches": totals.batches,
        "rows_per_second": round(one.rows_per_second, 3),
        "wait_seconds": round(totals.wait, 3),
        "iterating_seconds": round(totals.wall, 3),
        "stall": round(totals.stall, 6),
        "replay_mismatches": totals.mismatches,
        "workers": {
            share.name: {"rows": share.rows, "busy_seconds": round(share.busy, 3)}
            for share in one.workers
        },
    }
