"""The result of a run as JSON values, and these as text: pure functions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.format import plural
from distributed_input.runner.display.stats import InputStats, Totals, rows_by_address

_RATE_SECONDS = 1.0
"""Shortest time of reading that shows a rate."""
VERSION = 1
"""Version of the JSON layout. New versions of this program only add fields."""


def of_run(
    status: int,
    cause: str,
    seconds: float,
    inputs: Mapping[str, Mapping[str, Any]],
    processes: Mapping[str, Mapping[str, Any]],
) -> dict[str, Any]:
    """Return the report of a run as JSON values. The fields' names contain their units.

    `cause` is why the run ended before the trainers; empty if they ended by themselves. `seconds`
    is the time from their start to their end. `inputs` are those of `of_input`, by name, and
    `processes` those of `of_process`, with the trainers.
    """
    return {
        "version": VERSION,
        "status": status,
        "cause": cause or None,
        "wall_seconds": round(seconds, 3),
        "inputs": inputs,
        "processes": processes,
    }


def of_process(peak_bytes: int, restarts: int = 0) -> dict[str, Any]:
    """Return the report of a process over all its starts. 0 bytes are unknown."""
    return {"restarts": restarts, "peak_rss_bytes": peak_bytes or None}


def of_input(
    stats: InputStats, workers: Mapping[str, Sequence[str]], trainers: int, seconds: float
) -> dict[str, Any]:
    """Return the report of one input. Its rate is over the time since the trainers' first batch.

    `workers` has the addresses of all starts of each worker, by name. `seconds` as in `of_run`.
    """
    totals = stats.totals()
    by_address = rows_by_address(stats)
    shares = {}
    for worker, addresses in workers.items():
        starts = [by_address.get(address, (0, 0.0)) for address in addresses]
        rows, busy = sum(rows for rows, _ in starts), sum(busy for _, busy in starts)
        shares[worker] = {"rows": rows, "busy_seconds": round(busy, 3)}
    rate = _rate(totals, trainers, seconds)
    return {
        "epochs": totals.epochs,
        "rows": totals.rows,
        "row": stats.row,
        "batches": totals.batches,
        "rows_per_second": None if rate is None else round(rate, 3),
        "wait_seconds": round(totals.wait, 3),
        "iterating_seconds": round(totals.wall, 3),
        "stall": round(totals.stall, 6),
        "replay_mismatches": totals.mismatches,
        "warnings": list(stats.warnings),
        "workers": shares,
    }


def _rate(totals: Totals, trainers: int, seconds: float) -> float | None:
    """Return the rows per second of all trainers, or None if they have read too little."""
    running = totals.wall / trainers or seconds
    if totals.rows and (running < _RATE_SECONDS or totals.batches <= trainers):
        return None
    return totals.rows / running if running > 0 else 0.0


def as_text(report: Mapping[str, Any]) -> str:
    """Return a report as text."""
    inputs = report["inputs"]
    shares = {worker: share for one in inputs.values() for worker, share in one["workers"].items()}
    rows = [("process", "rows", "busy", "restarts", "peak memory")]
    for name, process in report["processes"].items():
        share, peak = shares.get(name), process["peak_rss_bytes"]
        rows.append(
            (
                name,
                f"{share['rows']}" if share else "",
                f"{share['busy_seconds']:.1f} s" if share else "",
                str(process["restarts"] or ""),
                formatting.memory(peak) if peak else "?",
            )
        )
    notes = [note for name, one in inputs.items() if (note := _unread_note(name, one))]
    notes += [
        f"{name}: warning: {text}" for name, one in inputs.items() for text in one["warnings"]
    ]
    lines = [_input_line(name, one) for name, one in inputs.items()]
    head, tail = ("".join(f"  {line}\n" for line in part) for part in (lines, notes))
    return head + formatting.table(rows) + tail


def _unread_note(name: str, one: Mapping[str, Any]) -> str:
    """Return why the workers made more rows than the trainers read; empty if they did not."""
    more = sum(share["rows"] for share in one["workers"].values()) - one["rows"]
    if more <= 0:
        return ""
    return (
        f"{name}: the workers sent {plural(more, one['row'])} that the trainer did not read: "
        "those read ahead, also of the next epoch, and those sent again after a restart"
    )


def _input_line(name: str, one: Mapping[str, Any]) -> str:
    if not one["epochs"]:
        return f"{name}: the trainer read no {one['row']}s"
    rate = one["rows_per_second"]
    fields = [
        plural(one["epochs"], "epoch"),
        f"{plural(one['rows'], one['row'])} in {plural(one['batches'], 'batch')}",
        "too short for a rate" if rate is None else f"{formatting.rate(rate)} {one['row']}s/s",
        f"stall {one['stall']:.1%}",
    ]
    if one["replay_mismatches"]:
        fields.append(f"replay mismatches {one['replay_mismatches']}")
    return f"{name}: " + ", ".join(fields)
