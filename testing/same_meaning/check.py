"""Runs one case with TensorFlow and with the product, and returns the differences."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from distributed_input.api.proto import types_pb2
from testing.same_meaning import cases, product
from testing.same_meaning.cases import Case
from testing.same_meaning.judgement import compare, refusals
from testing.same_meaning.judgement.evidence import Difference
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.reference import DoesNotFit, Reference, Run
from testing.same_meaning.servers import Servers

_ENDLESS_PASSES = 4
_MOST_STEPS = 400
_MOST_ATTEMPTS = 50


@dataclass(frozen=True)
class Result:
    """The result of one case.

    Attributes:
        outcome: refused; else how the dataset was split.
        refusal: the reason of a refused case.
        warnings: of the product.
        differences: all differences.
    """

    outcome: str
    refusal: str = ""
    warnings: tuple[str, ...] = ()
    differences: tuple[Difference, ...] = field(default_factory=tuple)


def check(servers: Servers, case: Case, reference: Reference | None = None) -> Result:
    """Run a case.

    Args:
        servers: dispatcher and worker.
        case: the case.
        reference: of the case, from `drawn`.

    Raises:
        DoesNotFit: TensorFlow refuses the pipeline.
    """
    reference = reference or Reference(case)
    partitions = case.fields.get("partitions", case.trainers)
    first = reference.splits(case.fields.get("numSplits", partitions), partitions)
    steps = _endless_steps(first, case) if any(run.endless for run in first) else None
    seen = product.read(servers, case, steps)
    if seen.refused is not None:
        bad = refusals.difference(seen.refused, case, first)
        reason = refusals.reason_of(seen.refused)
        name = reason.name if reason else f"{type(seen.refused).__name__}: {seen.refused}"
        return Result("refused", name, (), (bad,) if bad else ())
    dealt = seen.job.shard_policy in ("DATA", "OFF")
    kept = grammar.keeping_remainder(case.pipeline, dealt)
    loses = any("drop_remainder=True: it loses rows" in warning for warning in seen.warnings)
    if kept is not None and seen.job.remainder != types_pb2.KEEP and not loses:
        reference = Reference(replace(case, pipeline=kept))
    found = compare.differences(case, seen, reference)
    policy = seen.job.shard_policy
    outcome = {"FILE": "by file", "DATA": "dealt", "OFF": "off"}.get(policy, "by function")
    return Result(outcome, "", tuple(seen.warnings), tuple(found))


def drawn(seed: int, faults: bool = False, small: bool = False) -> tuple[Case, Reference]:
    """Return the case of a seed: the first attempt that TensorFlow accepts."""
    for attempt in range(_MOST_ATTEMPTS):
        case = cases.draw(seed, attempt, faults, small)
        if grammar.may_never_return(case.pipeline):
            continue
        reference = Reference(case)
        try:
            reference.accept()
        except DoesNotFit:
            continue
        return case, reference
    raise DoesNotFit(f"seed {seed}")


def _endless_steps(runs: list[Run], case: Case) -> int:
    """Return the number of steps after which each row of an endless dataset was read."""
    distinct = len({repr(element) for run in runs for element in run.elements})
    batch = case.global_batch or case.fields.get("globalBatchSize", 1)
    return min(_MOST_STEPS, _ENDLESS_PASSES * max(1, distinct) // max(1, batch) + 8)


__all__ = ["DoesNotFit", "Result", "check", "drawn"]
