"""Compares the rows of an epoch, as a multiset."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from distributed_input.api.proto import types_pb2
from testing.same_meaning.judgement import values
from testing.same_meaning.judgement.evidence import Difference, Evidence
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.product import Epoch
from testing.same_meaning.reference import Run


def differences(evidence: Evidence, epochs: Sequence[Epoch], number: int) -> list[Difference]:
    """Compare the rows that all trainers got in an epoch."""
    try:
        expected = evidence.expected(evidence.runs) * evidence.copies
        found = [row for rows in evidence.found(epochs) for row in rows]
    except ValueError as error:
        return [Difference("components", str(error))]
    if evidence.endless:
        return _endless(evidence, expected, found, number)
    lost, padded = _allowed(evidence, len(expected), number)
    if evidence.job.shard_policy == "FILE" and evidence.job.remainder == types_pb2.DROP:
        # Which rows are left over depends on the order, which is another one.
        if len(expected) - len(found) in lost:
            return []
        return [Difference("number of rows", f"{len(found)} instead of {len(expected)}")]
    if evidence.again is not None:
        depends = _depends_on_order(evidence)
        if depends or Counter(expected) != Counter(_other(evidence)):
            atoms = [] if depends else _atoms(evidence, epochs, lost, padded)
            return [*_number(evidence, expected, found, lost, padded), *atoms]
    differing = _compare(Counter(expected), Counter(found), lost, padded)
    if differing and any(
        Counter(evidence.expected(runs) * evidence.copies) != Counter(expected)
        for runs in evidence.others()
    ):
        atoms = _atoms(evidence, epochs, lost, padded)
        return [*_number(evidence, expected, found, lost, padded), *atoms]
    return differing


def _allowed(evidence: Evidence, expected: int, number: int) -> tuple[set[int], bool]:
    """Return how many rows may be lost, and whether there is padding."""
    if not evidence.by_rows:  # TensorFlow drops the elements of a step that not all replicas get
        return set(range((evidence.case.replicas - 1) * evidence.case.trainers + 1)), False
    if evidence.job.remainder != types_pb2.DROP:
        return {0}, evidence.job.remainder == types_pb2.PAD
    steps = evidence.complete_steps(number)
    size = evidence.job.global_batch_size
    if steps is not None:
        return {expected - size * count for count in steps}, False
    if evidence.case.trainers == 1:
        return {expected % size}, False
    return {expected - size * count for count in range(expected // size + 1)}, False


def _depends_on_order(evidence: Evidence) -> bool:
    """Return whether rows depend on the order of others, which is random or not promised."""
    names = evidence.names
    # Two runs of TensorFlow may choose alike by chance.
    free = any(name in ("any_order", "list_files", "resample", *grammar.CHOOSING) for name in names)
    free = free or "False]" in repr(list(grammar.maps(evidence.case.pipeline)))
    return free and any(name in grammar.ORDER_DEPENDENT for name in names)


def _other(evidence: Evidence) -> list[str]:
    assert evidence.again is not None
    return evidence.expected(evidence.again) * evidence.copies


def _compare(
    expected: Counter[str], found: Counter[str], allowed: set[int], padded: bool
) -> list[Difference]:
    lost, more = expected - found, found - expected
    if padded:
        more = Counter({row: n for row, n in more.items() if not values.is_padding(row)})
    if not more and lost.total() in allowed:
        return []
    kind = "rows lost and others found" if lost and more else "rows lost" if lost else "more rows"
    if not lost and not more:
        kind = "incomplete steps"
    text = (
        f"{found.total()} rows for {expected.total()}; lost {lost.total()} of {sorted(allowed)[:5]}"
        f" allowed: {sorted(lost)[:3]}; more {more.total()}: {sorted(more)[:3]}"
    )
    return [Difference(kind, text)]


def _endless(
    evidence: Evidence, expected: list[str], found: list[str], number: int
) -> list[Difference]:
    if evidence.again is not None and set(expected) != set(_other(evidence)):
        return []
    strange = set(found) - set(expected)
    if strange:
        return [Difference("rows of no split", repr(sorted(strange)[:4]))]
    # New values without end; and pairs of rows that meet by chance, all of them only after long.
    new = {"scan", "enumerate", *(("zip", "zip_with") if evidence.again is not None else ())}
    missing = set() if new.intersection(evidence.names) else set(expected) - set(found)
    if missing and evidence.says_unknown_end and not evidence.plain:
        # Each partition stays in its first split, which the warning says.
        first = [evidence.runs[split] for split in evidence.first_splits(number)]
        missing &= set(evidence.expected(first))
    if missing:
        text = f"{len(missing)} of {len(set(expected))} rows in {len(found)} rows read"
        return [Difference("rows never read", f"{text}: {sorted(missing)[:4]}")]
    return []


def _number(
    evidence: Evidence, expected: list[str], found: list[str], allowed: set[int], padded: bool
) -> list[Difference]:
    """Compare the number of rows, unless it depends on random numbers."""
    lost = len(expected) - len(found)
    known = not any(name in grammar.COUNT_BY_VALUE for name in evidence.names)
    if lost in allowed or (padded and lost <= 0) or not known:
        return []
    if len(expected) != len(_other(evidence)):
        return []
    return [Difference("number of rows", f"{len(found)} instead of {len(expected)}")]


def _atoms(
    evidence: Evidence, epochs: Sequence[Epoch], allowed: set[int], padded: bool
) -> list[Difference]:
    """Compare the values in all rows, unless it is random which ones there are."""
    if allowed != {0} or evidence.pads:
        return []

    def atoms(runs: Iterable[Run]) -> Counter[str]:
        return Counter(values.atoms(e for run in runs for e in run.elements) * evidence.copies)

    expected = atoms(evidence.runs)
    steps = [part for epoch in epochs for step in epoch.steps for part in step]
    differing = _compare(expected, Counter(values.atoms(steps)), allowed, padded)
    if differing and any(atoms(runs) != expected for runs in evidence.others()):
        return []
    return differing
