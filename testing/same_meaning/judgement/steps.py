"""Compares numbers of steps, and their sizes."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api.proto import types_pb2
from testing.same_meaning.judgement.evidence import Difference, Evidence
from testing.same_meaning.judgement.values import Element
from testing.same_meaning.product import Epoch


def differences(evidence: Evidence, epochs: Sequence[Epoch], number: int) -> list[Difference]:
    """Check the number of steps, the same for all trainers, and of rows in each."""
    if not evidence.by_rows:
        return []
    found = [one for epoch in epochs for one in _sizes(evidence, epoch)]
    counts = {len(epoch.steps) for epoch in epochs}
    if len(counts) > 1:
        found.append(Difference("trainers take different steps", repr(sorted(counts))))
    expected = evidence.complete_steps(number)
    if expected is not None and not evidence.endless and not counts <= expected:
        text = f"{sorted(counts)}, expected {sorted(expected)}"
        found.append(Difference("number of steps", text))
    return found


def _sizes(evidence: Evidence, epoch: Epoch) -> list[Difference]:
    found = []
    counts = [[_count(part) for part in step] for step in epoch.steps]
    totals = [sum(count) for count in counts]
    while totals and not totals[-1]:  # other trainers have more steps
        totals.pop()
    share = evidence.share
    complete = totals if evidence.job.remainder != types_pb2.KEEP else totals[:-1]
    if any(total != share for total in complete) or any(total > share for total in totals):
        found.append(Difference("sizes of steps", f"{share} rows expected: {totals}"))
    uneven = [one for one in counts[: len(totals) - 1] if len(set(one)) > 1]
    if uneven and share % evidence.case.replicas == 0:
        found.append(Difference("sizes of replicas", repr(uneven[0])))
    return found


def _count(element: Element) -> int:
    return next((leaf.count or 0 for leaf in element if leaf.kind != "none"), 0)
