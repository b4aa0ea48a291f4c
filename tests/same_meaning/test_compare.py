"""The comparison finds each kind of difference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.api.proto import types_pb2
from testing.same_meaning import shrink
from testing.same_meaning.cases import FUNCTION, Case
from testing.same_meaning.judgement import compare, refusals
from testing.same_meaning.judgement.values import element_of, rows_of, structure_of, whole
from testing.same_meaning.product import Epoch, Seen
from testing.same_meaning.reference import Reference, Run

_PIPELINE = {"source": ["range", 1, 13], "ops": []}


def _seen(steps: list[list[int]], **fields: Any) -> Seen:
    job = types_pb2.Job(partitions=1, num_splits=1, global_batch_size=4, **fields)
    parts = [[element_of(np.array(rows, np.int64))] for rows in steps]
    return Seen(None, [[Epoch(parts)]], job)


class _Runs(Reference):
    """A reference with given runs."""

    def __init__(self, case: Case, runs: list[Run]) -> None:
        super().__init__(case)
        self.runs = runs

    def splits(self, *_: int, **__: int) -> list[Run]:
        return self.runs


def _kinds(seen: Seen, case: Case | None = None) -> list[str]:
    runs = [Run([element_of(np.int64(number)) for number in range(1, 13)])]
    case = case or Case(_PIPELINE)
    return [one.kind for one in compare.differences(case, seen, _Runs(case, runs))]


WHOLE = [[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 12]]


def test_equal_rows_are_no_difference() -> None:
    assert _kinds(_seen(WHOLE)) == []


@pytest.mark.parametrize(
    ("steps", "kind"),
    [
        ([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11]], "rows lost"),
        ([*WHOLE, [12]], "more rows"),
        ([[1, 2, 3, 4], [5, 6, 7, 8], [9, 10, 11, 99]], "rows lost and others found"),
        ([[1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11], [12]], "sizes of steps"),
        ([[1, 2, 3, 4, 5], [6, 7, 8, 9], [10, 11, 12]], "sizes of steps"),
    ],
)
def test_rows_and_sizes_of_steps_that_differ_are_found(steps: list[list[int]], kind: str) -> None:
    assert kind in _kinds(_seen(steps))


def test_batches_recognised_wrongly_are_found() -> None:
    assert "batches recognised wrongly" in _kinds(_seen([], batched=True))


def test_a_dataset_that_is_taken_for_endless_is_found() -> None:
    assert "endless or not" in _kinds(_seen(WHOLE, infinite=True))


def test_another_order_in_a_split_is_found() -> None:
    steps = [[1, 2, 4, 3], *WHOLE[1:]]

    assert _kinds(_seen(steps), Case(_PIPELINE, api=FUNCTION)) == ["order"]


def test_splits_that_are_shuffled_alike_are_found() -> None:
    pipeline = {"source": ["range", 0, 32], "ops": [["shard"], ["shuffle", 100, None, None]]}
    case = Case(pipeline, api=FUNCTION)
    alike = [
        2 * number + split
        for split in (0, 1)
        for number in np.random.default_rng(1).permutation(16)
    ]
    steps = [alike[start : start + 4] for start in range(0, 32, 4)]
    seen = _seen(steps)
    seen.job.num_splits = 2
    runs = [Run([element_of(np.int64(n)) for n in range(split, 32, 2)]) for split in (0, 1)]

    found = compare.differences(case, seen, _Runs(case, runs))

    assert [one.kind for one in found] == ["splits are shuffled alike"]


def test_an_error_of_one_side_only_is_found() -> None:
    seen = _seen(WHOLE)
    seen.epochs[0][0].error = RuntimeError("broken")

    assert _kinds(seen) == ["error"]


@pytest.mark.parametrize(("name", "kinds"), [("b", []), ("c", ["structure"])])
def test_components_with_other_names_are_found(name: str, kinds: list[str]) -> None:
    seen = _seen(WHOLE)
    seen.structure = structure_of({"a": np.int64(1), name: (None, np.int64(2))})
    elements = [element_of(np.int64(number)) for number in range(1, 13)]
    run = Run(elements, structure=structure_of({"a": 1, "b": (None, 2)}))
    case = Case(_PIPELINE)

    found = compare.differences(case, seen, _Runs(case, [run]))

    assert [one.kind for one in found] == kinds


def test_trainers_that_take_different_numbers_of_steps_are_found() -> None:
    one, other = _seen(WHOLE[:2]).epochs[0], _seen(WHOLE[2:]).epochs[0]
    seen = _seen([])
    seen.epochs = [one, other]
    seen.job.global_batch_size, seen.job.partitions, seen.job.num_splits = 8, 2, 2

    assert "trainers take different steps" in _kinds(seen, Case(_PIPELINE, trainers=2))


def test_epochs_that_are_shuffled_alike_are_found() -> None:
    pipeline = {"source": ["range", 1, 13], "ops": [["shuffle", 100, None, None]]}
    seen = _seen([[3, 1, 2, 12], [5, 4, 9, 8], [7, 6, 10, 11]])
    seen.epochs[0].append(seen.epochs[0][0])

    assert _kinds(seen, Case(pipeline, epochs=2)) == ["epochs are shuffled alike"]


@pytest.mark.parametrize(
    ("error", "endless", "kind"),
    [
        (ConfigError("2 splits, but the dataset never ends: only the first 1"), True, None),
        (ConfigError("2 splits, but the dataset never ends: only the first 1"), False, "but not"),
        (ConfigError("no"), True, "without a reason"),
        (RuntimeError("the dataset never ends: only the first"), True, "without a reason"),
    ],
)
def test_a_refusal_without_a_reason_that_holds_is_found(
    error: Exception, endless: bool, kind: str | None
) -> None:
    case = Case(_PIPELINE, fields={"partitions": 1, "numSplits": 2})

    found = refusals.difference(error, case, [Run([], endless=endless)])

    assert (found is None) if kind is None else (found is not None and kind in found.kind)


def test_a_failing_case_gets_smaller() -> None:
    ops = [["map", "add", None, None], ["take", 5], ["batch", 4, False]]
    case = Case({"source": ["range", 1, 41], "ops": ops}, trainers=2, epochs=2)

    def fails(candidate: Case) -> bool:
        return any(op[0] == "take" for op in candidate.pipeline["ops"])

    small = shrink.shrink(case, fails, 10.0)

    assert small == Case({"source": ["range", 1, 3], "ops": [["take", 5]]})


@pytest.mark.parametrize("make", [whole, lambda element: rows_of(element)[0]])
def test_random_values_are_not_compared_as_rows(make: Callable[[Any], str]) -> None:
    one = element_of((np.array([1]), np.array([5], np.uint64)))
    other = element_of((np.array([1]), np.array([6], np.uint64)))

    assert make(one) == make(other)
