"""Compares the order of rows, and whether splits and epochs draw numbers of their own."""

from __future__ import annotations

from collections.abc import Sequence

from distributed_input.api.proto import types_pb2
from testing.same_meaning.judgement import values
from testing.same_meaning.judgement.evidence import Difference, Evidence
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.product import Epoch
from testing.same_meaning.reference import DoesNotFit, Reference, in_order

_SAMPLE = 12  # rows of a split whose order is judged
_CHOICES = 45  # choices of one of two sources, which repeat by chance in 1 of 1e7 cases
_BUFFER = 8  # a smaller shuffle buffer hardly changes the order
_SHARED_NOISE = (
    "cache twice concatenate_same window snapshot sample choose choose_random repeat endless "
    "seeded_noise scan zip zip_with concatenate spread group_by_window"
).split()
"""What uses a value twice, or makes equal values on purpose."""


def differences(evidence: Evidence, epochs: Sequence[Epoch]) -> list[Difference]:
    """Check the order in each split, and that splits do not share an order."""
    if evidence.endless or evidence.pads or evidence.python:
        return []
    try:
        if evidence.again is None:
            free = any(name in evidence.names for name in ("any_order", "unique"))
            return [] if free else _same_order(evidence, epochs)
        return _independent(evidence, epochs)
    except ValueError:
        return []  # reported with the rows


def _same_order(evidence: Evidence, epochs: Sequence[Epoch]) -> list[Difference]:
    """Check that the rows of each split come in its order, to one trainer."""
    splits = evidence.of_splits()
    if splits is None:
        return []
    trainers = evidence.found(epochs)
    unique = len({row for rows in splits for row in rows}) == sum(map(len, splits))
    drops = evidence.by_rows and evidence.job.remainder == types_pb2.DROP
    drops = drops or (not evidence.by_rows and evidence.case.replicas > 1)
    for number, rows in enumerate(splits):
        if unique:
            mine = set(rows)
            parts = [[row for row in found if row in mine] for found in trainers]
            parts = [part for part in parts if part]
            if evidence.job.remainder == types_pb2.PAD:  # padding may look like a row
                parts = [_without_padding(part, len(rows)) for part in parts]
            right = all(part == rows[: len(part)] for part in parts) and len(parts) <= 1
        else:
            right = drops or any(_is_subsequence(rows, found) for found in trainers)
        if not right:
            return [Difference("order", f"split {number}: {rows[:12]}; found {trainers[0][:12]}")]
    return []


def _without_padding(rows: list[str], count: int) -> list[str]:
    while len(rows) > count and values.is_padding(rows[-1]):
        rows = rows[:-1]
    return rows


def _is_subsequence(rows: Sequence[str], found: Sequence[str]) -> bool:
    rest = iter(found)
    return all(row in rest for row in rows)


def _independent(evidence: Evidence, epochs: Sequence[Epoch]) -> list[Difference]:
    """Report splits whose rows an op behind the shard shuffled or chose alike."""
    if evidence.plain or not _draws_behind_the_shard(evidence.case.pipeline):
        return []
    try:
        permutations = _permutations(evidence, epochs)
    except DoesNotFit:
        return []
    seen: dict[tuple[int, ...], int] = {}
    for number, permutation in enumerate(permutations):
        if permutation in seen:
            text = f"splits {seen[permutation]} and {number}: {permutation[:12]}"
            return [Difference("splits are shuffled alike", text)]
        if permutation:
            seen[permutation] = number
    return []


def _permutations(evidence: Evidence, epochs: Sequence[Epoch]) -> list[tuple[int, ...]]:
    """Return the places of each split's rows in the split without random ops.

    It is empty if there are too few rows to judge, or if they cannot be told apart.
    """
    base = Reference(in_order(evidence.case)).splits(
        evidence.job.num_splits, evidence.job.partitions
    )
    splits = [evidence.expected([run]) for run in base]
    everything = {row for rows in splits for row in rows}
    found = [row for rows in evidence.found(epochs) for row in rows]
    if len(everything) != sum(map(len, splits)) or not everything.issuperset(found):
        return []
    least = _CHOICES if grammar.chooses(evidence.case.pipeline) else _SAMPLE
    permutations = []
    for rows in splits:
        places = {row: place for place, row in enumerate(rows)}
        permutation = tuple(places[row] for row in found if row in places)
        permutations.append(permutation if len(permutation) >= least else ())
    return permutations


def _draws_behind_the_shard(pipeline: grammar.Pipeline) -> bool:
    """Return whether an op that draws many numbers is behind the shard, and none before it."""
    if any(op[0] == "shard" for op in pipeline["ops"]):
        place = [op[0] for op in pipeline["ops"]].index("shard")
        before, behind = pipeline["ops"][:place], pipeline["ops"][place + 1 :]
        source = pipeline["source"][0] in grammar.CHOOSING
    else:
        before, behind = [], pipeline["ops"]
        source = False
        if not grammar.is_sharded_inside(pipeline):
            return False
        if pipeline["source"][0] in grammar.CHOOSING:
            return True
    if source or any(op[0] in ("shuffle", "apply", "resample_uneven") for op in before):
        return False
    return any(
        (op[0] == "shuffle" and op[1] >= _BUFFER) or op[0] in ("apply", "resample_uneven")
        for op in behind
    )


def between_epochs(evidence: Evidence) -> list[Difference]:
    """Check that a shuffle draws another order in each epoch, or the same if that is requested."""
    case = evidence.case
    shuffles = [op for op in case.pipeline["ops"] if op[0] == "shuffle"]
    if case.epochs < 2 or case.fault or not shuffles or evidence.endless or evidence.pads:
        return []
    if any(name in evidence.names for name in ("cache", "snapshot", "any_order", "repeat")):
        return []
    fixed = all(op[3] is False for op in shuffles) and _only_shuffles(evidence)
    again = [op[3] is not False and op[1] >= _BUFFER for op in shuffles]
    try:
        first, second = (_by_split(evidence, number) for number in (0, 1))
    except ValueError:
        return []
    for number, (one, other) in enumerate(zip(first, second, strict=True)):
        if len(one) < _SAMPLE or len(set(one)) < len(one):
            continue
        if any(again) and one == other:
            return [Difference("epochs are shuffled alike", f"split {number}: {one[:12]}")]
        if fixed and one != other:
            return [Difference("a fixed shuffle changes", f"split {number}: {one[:12]}")]
    return []


def _by_split(evidence: Evidence, number: int) -> list[list[str]]:
    """Return the rows of each split in an epoch, in order; of a plain dataset, all rows."""
    epochs = [trainer[number] for trainer in evidence.seen.epochs]
    found = [row for rows in evidence.found(epochs) for row in rows]
    if evidence.plain:
        return [found]
    splits = [set(evidence.expected([run])) for run in evidence.runs]
    return [[row for row in found if row in split] for split in splits]


def _only_shuffles(evidence: Evidence) -> bool:
    """Return whether all that is random is a shuffle behind the shard."""
    if evidence.plain or not _draws_behind_the_shard(evidence.case.pipeline):
        return False
    if evidence.by_rows and evidence.job.remainder == types_pb2.DROP:
        return False  # other rows are dropped in each epoch
    others = set(evidence.names) - {"shuffle"}
    return not any(name in others for name in grammar.RANDOM)


def noise(evidence: Evidence, epochs: Sequence[Epoch]) -> list[Difference]:
    """Check that no random value occurs twice."""
    names = evidence.names
    if evidence.endless or "noise" not in names or any(name in _SHARED_NOISE for name in names):
        return []
    sharded = any(name in ("shard", "sharded_files") for name in names)
    if evidence.copies > 1 or not (sharded or evidence.plain):
        return []
    parts = [part for epoch in epochs for step in epoch.steps for part in step]
    drawn = [value for part in parts for value in values.noise_of(part) if value]
    if evidence.job.remainder == types_pb2.PAD or len(set(drawn)) == len(drawn):
        return []
    return [Difference("equal random values", f"{len(set(drawn))} of {len(drawn)}")]
