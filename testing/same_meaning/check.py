"""Runs one case with TensorFlow and with the product, and returns the differences."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from testing.same_meaning import cases, compare, product, reference
from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.compare import Difference
from testing.same_meaning.reference import DoesNotFit, Run
from testing.same_meaning.servers import Servers

_ENDLESS_PASSES = 4
_MOST_STEPS = 400
_MOST_ATTEMPTS = 50


@dataclass(frozen=True)
class Result:
    """The result of one case.

    Attributes:
        outcome: refused; else how the dataset was split.
        refusal: the error of a refused case.
        warnings: of the product.
        differences: all differences.
    """

    outcome: str
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = field(default_factory=tuple)


def check(servers: Servers, case: Case) -> Result:
    """Run a case.

    Raises:
        DoesNotFit: TensorFlow refuses the pipeline.
    """
    first = reference.run(build(case))
    steps = _endless_steps(first, case) if first.endless else None
    seen = product.read(servers, case, steps)
    if seen.refused is not None:
        bad = compare.refusal(seen)
        text = f"{type(seen.refused).__name__}: {seen.refused}"
        return Result("refused", text, (), (bad,) if bad else ())
    runs = reference.splits(case, seen.job.num_splits, seen.job.partitions, 1)
    random = reference.is_random(case)
    again = reference.splits(case, seen.job.num_splits, seen.job.partitions, 2) if random else None
    found = compare.differences(case, seen, runs, again)
    policy = seen.job.shard_policy
    outcome = {"FILE": "by file", "DATA": "dealt", "OFF": "off"}.get(policy, "by function")
    return Result(outcome, "", tuple(seen.warnings), tuple(found))


def build(case: Case) -> Any:
    """Build the dataset of a case, of one split. Raises DoesNotFit."""
    context: Any = reference.Context(1, 0, 1)
    return reference.build(case, None if case.api == PLAIN else context)


def drawn(seed: int, faults: bool = False, small: bool = False) -> Case:
    """Return the case of a seed: the first attempt that TensorFlow accepts."""
    for attempt in range(_MOST_ATTEMPTS):
        case = cases.draw(seed, attempt, faults, small)
        try:
            build(case)
        except DoesNotFit:
            continue
        return case
    raise DoesNotFit(f"seed {seed}")


def _endless_steps(first: Run, case: Case) -> int:
    """Return the number of steps after which each row of an endless dataset was read."""
    distinct = len({repr(element) for element in first.elements})
    batch = case.global_batch or case.fields.get("globalBatchSize", 1)
    return min(_MOST_STEPS, _ENDLESS_PASSES * max(1, distinct) // max(1, batch) + 8)


__all__ = ["DoesNotFit", "Result", "check", "drawn"]
