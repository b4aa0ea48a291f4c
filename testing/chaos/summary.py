"""Counts and waiting times over many outcomes."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from testing.chaos.run import Outcome

_AFTER_SECONDS = 3.0  # a fault can delay the steps that began within this time


def stalls_of(outcome: Outcome) -> list[tuple[str, float, int]]:
    """Return (kind, seconds, replayed rows) for each fault.

    The seconds are those of the longest step that began within a few seconds of the fault and ended
    after it. The rows are those of the longest replay in that time.
    """
    offset = time.time() - time.monotonic()
    found = []
    for fault in outcome.applied:
        within = [
            (end, seconds)
            for end, seconds in outcome.steps
            if end > fault.at and end - seconds < fault.at + _AFTER_SECONDS
        ]
        end, longest = max(within, key=lambda step: step[1], default=(0.0, 0.0))
        replayed = [r.rows for r in outcome.replays if fault.at - 1 <= r.at - offset <= end]
        found.append((fault.kind, longest, max(replayed, default=0)))
    return found


def quantile(values: Sequence[float], part: float) -> float:
    """Return the value below which this part of the values lies; 0 if there are none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def summary(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """Return a summary of all outcomes as plain values."""
    done = list(outcomes)
    stalls: dict[str, list[float]] = defaultdict(list)
    replayed: dict[str, list[float]] = defaultdict(list)
    for outcome in done:
        pause = outcome.schedule.data.sleep_ms / 1000
        for kind, seconds, rows in stalls_of(outcome):
            stalls[kind].append(seconds)
            replayed[kind].append(min(seconds, rows * pause))
    kinds = Counter(a.kind for o in done for a in o.applied)
    return {
        "schedules": len(done),
        "failed": [o.schedule.seed for o in done if not o.passed],
        "rows": sum(o.verdict.received for o in done),
        "delivered": sum(o.verdict.delivered for o in done),
        "epochs": sum(o.verdict.epochs for o in done),
        "lost": sum(o.verdict.lost for o in done),
        "repeated": sum(o.verdict.repeated for o in done),
        "damaged": sum(o.verdict.damaged for o in done),
        "faults": {
            kind: {
                "count": count,
                "stall_p50": quantile(stalls[kind], 0.5),
                "stall_p99": quantile(stalls[kind], 0.99),
                "replay_p99": quantile(replayed[kind], 0.99),
            }
            for kind, count in kinds.most_common()
        },
    }


def table(totals: dict[str, Any], seconds: float) -> str:
    """Return a summary as text."""
    lines = [
        f"{totals['schedules']} schedules in {seconds:.0f} s "
        f"({60 * totals['schedules'] / max(seconds, 1e-9):.0f} a minute), "
        f"{len(totals['failed'])} failed; {totals['epochs']} epochs ended, {totals['rows']} rows: "
        f"{totals['lost']} lost, {totals['repeated']} repeated, {totals['damaged']} damaged",
        f"{'fault':<18}{'times':>6}{'stall p50':>11}{'p99':>9}{'replay p99':>19}",
    ]
    for kind, row in totals["faults"].items():
        lines.append(
            f"{kind:<18}{row['count']:>6}{row['stall_p50']:>9.2f} s{row['stall_p99']:>7.2f} s"
            f"{row['replay_p99']:>17.2f} s"
        )
    return "\n".join(lines)
