"""Compares what the trainers saw with TensorFlow.

This module is long because it has all the ways in which they may differ.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError
from distributed_input.api.proto import types_pb2
from testing.same_meaning import grammar, python_sources, reference, values
from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.product import Epoch, Seen, Step
from testing.same_meaning.reference import Run
from testing.same_meaning.values import Element

_SAMPLE = 12  # rows of a split whose order is judged
_ANY = 1 << 30
_BUFFER = 8  # a smaller shuffle buffer hardly changes the order


@dataclass(frozen=True)
class Difference:
    """One way in which the product differs from TensorFlow.

    Attributes:
        kind: what differs.
        detail: expected and found values.
    """

    kind: str
    detail: str


def refusal(seen: Seen) -> Difference | None:
    """Return a difference if a refusal is not a clear error of the user's dataset."""
    if isinstance(seen.refused, ConfigError | DatasetFnError | SpecError):
        return None
    return Difference("refused without a reason", repr(seen.refused)[:300])


def differences(
    case: Case, seen: Seen, runs: list[Run], again: list[Run] | None
) -> list[Difference]:
    """Return all differences of a case that was not refused.

    Args:
        case: the case.
        seen: what its trainers saw.
        runs: what TensorFlow makes of each split.
        again: the same with other random numbers; None if the pipeline draws none.
    """
    judge = _Judge(case, seen, runs, again)
    found = [*judge.decisions(), *judge.spec()]
    for number in range(case.epochs):
        epochs = [trainer[number] for trainer in seen.epochs]
        ended = judge.ends(epochs)
        found += ended or [
            *judge.rows(epochs),
            *judge.sizes(epochs),
            *(judge.order(epochs) if not any(one.error for one in epochs) else []),
            *judge.noise(epochs),
        ]
    unique = {one.kind: one for one in reversed(found)}
    return list(unique.values())


class _Judge:
    def __init__(self, case: Case, seen: Seen, runs: list[Run], again: list[Run] | None) -> None:
        self.case, self.job, self.seen, self.runs, self.again = case, seen.job, seen, runs, again
        self.by_rows = bool(self.job.global_batch_size)
        self.plain = case.api == PLAIN
        self.error = next((run.error for run in runs if run.error), "")
        self.endless = any(run.endless for run in runs)
        self.python = case.pipeline["source"][1] if case.pipeline["source"][0] == "python" else ""
        self.copies = case.trainers if self.job.shard_policy == "OFF" else 1

    # What the product decided before the first row.

    def decisions(self) -> list[Difference]:
        certain = grammar.is_batched(self.case.pipeline)
        found = []
        if self.by_rows and certain is not None and self.job.batched != certain:
            text = f"elements are {'batches' if certain else 'rows'}: batched={self.job.batched}"
            found.append(Difference("batches recognised wrongly", text))
        if self.job.infinite != self.endless and not self.error and not self.python:
            text = f"the job is {'endless' if self.job.infinite else 'finite'}, the dataset is not"
            if self.job.infinite or not self._hidden():
                found.append(Difference("endless or not", text))
        return found

    def _hidden(self) -> bool:
        """Return whether only running the pipeline can show that it is endless."""
        return any(name in ("sample", "choose") for name in grammar.names_of(self.case.pipeline))

    def spec(self) -> list[Difference]:
        """Compare the element_spec of the loop with the one of the dataset."""
        if self.seen.element_spec is None or self.case.replicas > 1 or self.python:
            return []
        context: Any = reference.Context(self.job.num_splits, 0, self.job.partitions)
        expected = tf.nest.flatten(reference.build(self.case, context).element_spec)
        found = tf.nest.flatten(self.seen.element_spec)
        if len(found) != len(expected):
            return [Difference("element_spec", f"{len(found)} components for {len(expected)}")]
        pairs = zip(expected, found, strict=True)
        return [
            Difference("element_spec", f"expected {one}, found {other}")
            for one, other in pairs
            if hasattr(one, "dtype") and not self._fits(one, other)
        ]

    def _fits(self, expected: Any, found: Any) -> bool:
        if expected.dtype != found.dtype:
            return False
        if type(expected) is not type(found):
            return self.by_rows and isinstance(found, tf.RaggedTensorSpec)
        if not isinstance(expected, tf.TensorSpec):
            return True
        if expected.shape.rank is None or found.shape.rank is None:
            return expected.shape.rank == found.shape.rank
        inner, mine = expected.shape.as_list(), found.shape.as_list()
        if not self.by_rows:
            return inner[1:] == mine[1:] and len(inner) == len(mine)
        return (inner[1:] if self.job.batched else inner) == mine[1:]

    # One epoch of all trainers.

    def ends(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Compare how the epoch ended."""
        errors = [epoch.error for epoch in epochs if epoch.error is not None]
        allowed = python_sources.EXPECTED_TEXT.get(self.python)
        if errors and allowed:
            named = allowed in str(errors[0])
            return [] if named else [Difference("error without the cause", str(errors[0])[:400])]
        if self.error:
            return [] if errors else [Difference("no error", f"TensorFlow: {self.error}")]
        if errors and self._shapes(errors):
            return []
        if errors:
            return [Difference("error", f"{type(errors[0]).__name__}: {str(errors[0])[:600]}")]
        if self.endless and not all(epoch.stopped for epoch in epochs):
            return [Difference("ended", "an endless dataset ended")]
        return []

    def _shapes(self, errors: Sequence[Exception]) -> bool:
        """Return whether rows of different shapes were refused, which no batch can hold.

        If the user's own batches hold them, the refusal is a difference.
        """
        text = str(errors[0])
        if self.again is not None and "different shapes" in text:
            return True  # which elements meet in a batch is random
        certain = grammar.is_batched(self.case.pipeline)
        return "rows of one batch have shapes" in text and certain is not True

    def expected(self, runs: list[Run]) -> list[str]:
        """Return the rows of an epoch."""
        elements = [element for run in runs for element in run.elements]
        if self.by_rows and self.job.batched:
            return [row for element in elements for row in values.rows_of(element)]
        return [values.whole(element) for element in elements]

    def found(self, epochs: Iterable[Epoch]) -> list[list[str]]:
        """Return the rows of each trainer, in order."""
        return [[row for step in epoch.steps for row in self._rows(step)] for epoch in epochs]

    def _rows(self, step: Step) -> list[str]:
        if self.by_rows:
            return [row for part in step for row in values.rows_of(part) if part]
        if self.plain and len(step) > 1 and all(_has_rows(part) for part in step):
            return [values.whole(values.joined(step))]
        return [values.whole(part) for part in step]

    def rows(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Compare the rows of an epoch as a multiset."""
        if self.error or any(epoch.error for epoch in epochs):
            return []
        try:
            expected = self.expected(self.runs) * self.copies
            found = [row for rows in self.found(epochs) for row in rows]
        except ValueError as error:
            return [Difference("components", str(error))]
        if self.python:
            expected, found = ([values.untyped(row) for row in rows] for rows in (expected, found))
        if self._pads():
            expected = [values.without_padding(row) for row in expected]
            found = [values.without_padding(row) for row in found]
        if self.endless:
            return self._endless(expected, found)
        if self.again is not None and self._depends_on_order(expected):
            return self._random(epochs, expected, found)
        return self._compare(Counter(expected), Counter(found))

    def _depends_on_order(self, expected: list[str]) -> bool:
        """Return whether the rows depend on an order that is random or not promised."""
        names = grammar.names_of(self.case.pipeline)
        free = any(name in ("any_order", "list_files") for name in names)
        free = free or "False]" in repr(list(grammar.maps(self.case.pipeline)))
        if free and any(name in grammar.ORDER_DEPENDENT for name in names):
            return True
        return Counter(expected) != Counter(self._other())

    def _pads(self) -> bool:
        names = grammar.names_of(self.case.pipeline)
        return self.by_rows and any(
            n in ("padded_batch", "bucket", "replica_padded") for n in names
        )

    def _other(self) -> list[str]:
        assert self.again is not None
        rows = self.expected(self.again) * self.copies
        return [values.without_padding(row) for row in rows] if self._pads() else rows

    def _compare(self, expected: Counter[str], found: Counter[str]) -> list[Difference]:
        lost, more = expected - found, found - expected
        allowed = self._droppable()
        if self.job.remainder == types_pb2.PAD and self.by_rows:
            more = Counter({row: n for row, n in more.items() if not _is_padding(row)})
        if not more and sum(lost.values()) <= allowed:
            return []
        kind = (
            "rows lost and others found" if lost and more else "rows lost" if lost else "more rows"
        )
        return [Difference(kind, _text(expected, found, lost, more))]

    def _droppable(self) -> int:
        """Return how many rows may be lost because incomplete batches are dropped."""
        if not self.by_rows:  # TensorFlow drops the elements of a step that not all replicas get
            return (self.case.replicas - 1) * self.case.trainers
        if self.job.remainder != types_pb2.DROP:
            return 0
        # All trainers take the same number of steps, so that one with few rows ends the others.
        return _ANY if self.case.trainers > 1 else self.job.global_batch_size - 1

    def _endless(self, expected: list[str], found: list[str]) -> list[Difference]:
        if self.again is not None and set(expected) != set(self._other()):
            return []
        strange = set(found) - set(expected)
        if strange:
            return [Difference("rows of no split", repr(sorted(strange)[:4]))]
        missing = set(expected) - set(found)
        if missing:
            text = f"{len(missing)} of {len(set(expected))} rows in {len(found)} rows read"
            return [Difference("rows never read", f"{text}: {sorted(missing)[:4]}")]
        return []

    def _random(
        self, epochs: Sequence[Epoch], expected: list[str], found: list[str]
    ) -> list[Difference]:
        """Compare a pipeline whose elements depend on random numbers: only what does not."""
        other = self._other()
        if len(expected) == len(other) and len(found) != len(expected):
            lost = len(expected) - len(found)
            if not 0 <= lost <= self._droppable():
                return [Difference("number of rows", f"{len(found)} instead of {len(expected)}")]
        steps = [part for epoch in epochs for step in epoch.steps for part in step]
        sides = [
            values.atoms(e for run in r for e in run.elements)
            for r in (self.runs, self.again or [])
        ]
        one, two = (Counter(side * self.copies) for side in sides)
        if one == two and not self._droppable() and not self._pads():
            return self._compare(one, Counter(values.atoms(steps)))
        return []

    def sizes(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Check the number of rows of each step."""
        if not self.by_rows or self.error:
            return []
        share = self.job.global_batch_size // self.case.trainers
        found = []
        for epoch in epochs:
            counts = [[_count(part) for part in step] for step in epoch.steps]
            totals = [sum(count) for count in counts]
            while totals and not totals[-1]:  # other trainers have more steps
                totals.pop()
            complete = totals if self.job.remainder != types_pb2.KEEP else totals[:-1]
            if any(total != share for total in complete) or any(total > share for total in totals):
                found.append(Difference("sizes of steps", f"{share} rows expected: {totals}"))
            uneven = [one for one in counts[: len(totals) - 1] if len(set(one)) > 1]
            if uneven and share % self.case.replicas == 0:
                found.append(Difference("sizes of replicas", repr(uneven[0])))
        return found

    def order(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Check the order in each split, and that splits do not share an order."""
        if self.plain or self.endless or self.error or self._pads() or self.python:
            return []
        if (
            not any(
                name in grammar.names_of(self.case.pipeline) for name in ("any_order", "unique")
            )
            and self.again is None
        ):
            return self._same_order(epochs)
        return self._independent(epochs)

    def _same_order(self, epochs: Sequence[Epoch]) -> list[Difference]:
        try:
            trainers = self.found(epochs)
            for number, run in enumerate(self.runs):
                rows = self.expected([run])
                if self._droppable():
                    continue
                if not any(_is_subsequence(rows, found) for found in trainers):
                    return [Difference("order", f"split {number}: {rows[:12]}")]
        except ValueError:
            return []
        return []

    def _independent(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Report splits that were permuted alike by an op behind the shard."""
        if not _draws_behind_the_shard(self.case.pipeline):
            return []
        try:
            plain = reference.in_order(self.case)
            base = reference.splits(plain, self.job.num_splits, self.job.partitions, 1)
            order = [self.expected([run]) for run in base]
            all_rows = [row for rows in order for row in rows]
            found = [row for rows in self.found(epochs) for row in rows]
        except (ValueError, reference.DoesNotFit):
            return []
        if len(set(all_rows)) != len(all_rows) or set(all_rows) != set(found):
            return []
        permutations: dict[tuple[int, ...], int] = {}
        for number, rows in enumerate(order):
            places = {row: place for place, row in enumerate(rows)}
            permutation = tuple(places[row] for row in found if row in places)
            if len(permutation) < _SAMPLE:
                continue
            if permutation in permutations:
                text = f"splits {permutations[permutation]} and {number}: {permutation[:12]}"
                return [Difference("splits are shuffled alike", text)]
            permutations[permutation] = number
        return []

    def noise(self, epochs: Sequence[Epoch]) -> list[Difference]:
        """Check that no random value occurs twice."""
        names = grammar.names_of(self.case.pipeline)
        shared = (
            "cache",
            "twice",
            "concatenate_same",
            "window",
            "snapshot",
            "sample",
            "choose",
            "repeat",
            "endless",
            "seeded_noise",
            "scan",
            "zip",
            "zip_with",
            "concatenate",
            "spread",
            "group_by_window",
        )
        if self.endless or "noise" not in names or any(name in shared for name in names):
            return []
        if self.copies > 1 or (
            not any(n in names for n in ("shard", "sharded_files")) and not self.plain
        ):
            return []
        parts = [part for epoch in epochs for step in epoch.steps for part in step]
        drawn = [value for part in parts for value in values.noise_of(part) if value]
        if self.job.remainder == types_pb2.PAD or len(set(drawn)) == len(drawn):
            return []
        return [Difference("equal random values", f"{len(set(drawn))} of {len(drawn)}")]


def _has_rows(element: Element) -> bool:
    return all(leaf.count is not None for leaf in element if leaf.kind != "none")


def _count(element: Element) -> int:
    return next((leaf.count or 0 for leaf in element if leaf.kind != "none"), 0)


def _is_padding(row: str) -> bool:
    """Return whether a row has only zeros, empty strings and empty lists."""
    bare = re.sub(r"'[a-z]+[0-9]*'|b''|False|nan", "", row)
    return not re.search(r"[1-9]|True|b'", bare)


def _is_subsequence(rows: Sequence[str], found: Sequence[str]) -> bool:
    rest = iter(found)
    return all(row in rest for row in rows)


def _draws_behind_the_shard(pipeline: grammar.Pipeline) -> bool:
    """Return whether the last shuffle of a large buffer is behind the shard."""
    names = [op[0] for op in pipeline["ops"]]
    if "shard" not in names and pipeline["source"][0] != "sharded_files":
        return False
    behind = pipeline["ops"][names.index("shard") + 1 :] if "shard" in names else pipeline["ops"]
    before = pipeline["ops"][: names.index("shard")] if "shard" in names else []
    if any(op[0] in ("shuffle", "apply") for op in before):
        return False
    if any(op[0] == "resample" for op in pipeline["ops"]):
        return False
    return any((op[0] == "shuffle" and op[1] >= _BUFFER) or op[0] == "apply" for op in behind)


def _text(
    expected: Counter[str], found: Counter[str], lost: Counter[str], more: Counter[str]
) -> str:
    return (
        f"{sum(found.values())} rows for {sum(expected.values())}; lost {sum(lost.values())}: "
        f"{sorted(lost)[:3]}; more {sum(more.values())}: {sorted(more)[:3]}"
    )
