"""The closing table: what was run, and what came of it."""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any

from testing.chaos.run import Outcome

_AFTER_SECONDS = 3.0  # a fault is answerable for steps that were under way so long after it


def stalls_of(outcome: Outcome) -> list[tuple[str, float, int]]:
    """(kind, seconds, rows replayed) of each fault: the longest step that it may have held up.

    A step that began before the next fault, and ended after this one. The rows are those that
    the worst of the streams opened again meanwhile has to make anew.
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
    """The value below which a part of them lies; 0 of none."""
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(part * len(ordered)))] if ordered else 0.0


def summary(outcomes: Iterable[Outcome]) -> dict[str, Any]:
    """All outcomes as plain values, for JSON."""
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
        "failed": [o.schedule.seed for o in done if not o.good],
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


def table(told: dict[str, Any], seconds: float) -> str:
    """A summary for people."""
    lines = [
        f"{told['schedules']} schedules in {seconds:.0f} s "
        f"({60 * told['schedules'] / max(seconds, 1e-9):.0f} a minute), "
        f"{len(told['failed'])} failed; {told['epochs']} epochs ended, {told['rows']} rows: "
        f"{told['lost']} lost, {told['repeated']} repeated, {told['damaged']} damaged",
        f"{'fault':<18}{'times':>6}{'stall p50':>11}{'p99':>9}{'replay in it, p99':>19}",
    ]
    for kind, its in told["faults"].items():
        lines.append(
            f"{kind:<18}{its['count']:>6}{its['stall_p50']:>9.2f} s{its['stall_p99']:>7.2f} s"
            f"{its['replay_p99']:>17.2f} s"
        )
    return "\n".join(lines)
