"""The refusals that a case may deserve. Any other one is a difference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError
from testing.same_meaning.cases import Case
from testing.same_meaning.judgement.evidence import Difference
from testing.same_meaning.pipelines import grammar
from testing.same_meaning.reference import Run

_BATCHES = (*"batch padded_batch ragged_batch rebatch group_by_window bucket window".split(),)


@dataclass(frozen=True)
class Reason:
    """A known reason to refuse a dataset.

    Attributes:
        name: for the table.
        text: a part of the error.
        deserved: whether a case, with the runs of its splits, has this reason.
    """

    name: str
    text: str
    deserved: Callable[[Case, Sequence[Run]], bool]


def difference(error: Exception, case: Case, runs: Sequence[Run]) -> Difference | None:
    """Return a difference if a refusal is no clear error, or has a reason that does not hold."""
    reason = reason_of(error)
    if reason is None:
        return Difference("refused without a reason", f"{type(error).__name__}: {error}"[:500])
    if not reason.deserved(case, runs):
        return Difference(f"refused, but not: {reason.name}", str(error)[:500])
    return None


def reason_of(error: Exception) -> Reason | None:
    """Return the known reason of an error."""
    if not isinstance(error, ConfigError | DatasetFnError | SpecError):
        return None
    return next((reason for reason in REASONS if reason.text in str(error)), None)


def _leaves(runs: Sequence[Run]) -> list[Any]:
    return [leaf for run in runs[:1] for leaf in tf.nest.flatten(run.spec)]


def _unknown_rank(case: Case, runs: Sequence[Run]) -> bool:
    return any(hasattr(leaf, "shape") and leaf.shape.rank is None for leaf in _leaves(runs))


def _is_endless(case: Case, runs: Sequence[Run]) -> bool:
    unread = case.fields.get("numSplits", 0) > case.fields.get("partitions", case.trainers)
    # An error may come before the row that shows it. Only running it shows that there is no row.
    repeats = "endless" in grammar.names_of(case.pipeline)
    hidden = any(run.error for run in runs) or not any(run.elements for run in runs)
    return unread and (any(run.endless for run in runs) or (repeats and hidden))


def _first_is_empty(case: Case, runs: Sequence[Run]) -> bool:
    return case.pipeline["source"][0] == "python" and not runs[0].elements


def _specs_differ(case: Case, runs: Sequence[Run]) -> bool:
    return len({repr(run.spec) for run in runs}) > 1 or _python_types_differ(runs)


def _python_types_differ(runs: Sequence[Run]) -> bool:
    """Return whether the first elements of splits have other types or shapes."""
    firsts = [run.elements[0] for run in runs if run.spec is None and run.elements]
    return len({tuple((leaf.dtype, leaf.shape) for leaf in one) for one in firsts}) > 1


def _ops(case: Case) -> list[list[Any]]:
    return [op for one in grammar.nested(case.pipeline) for op in one["ops"]]


def _has_policy(case: Case, _: Sequence[Run]) -> bool:
    return ["policy", "FILE"] in _ops(case)


def _scalars_of_ragged(case: Case, runs: Sequence[Run]) -> bool:
    return any(getattr(leaf, "ragged_rank", 0) < 0 for leaf in _leaves(runs))


def _step_rows(case: Case) -> list[int]:
    """Return the sizes that a global batch may have."""
    given = case.global_batch or case.fields.get("globalBatchSize", 0)
    if given:
        return [given]
    sizes = [op[1] for op in _ops(case) if op[0] in _BATCHES]
    return [one for size in sizes for one in (size if isinstance(size, list) else [size])]


def _uneven(case: Case, _: Sequence[Run]) -> bool:
    parts = case.fields.get("partitions", case.trainers)
    rows = _step_rows(case)
    return any(size % parts or (size // case.trainers) % case.replicas for size in rows)


def _scalars(case: Case, runs: Sequence[Run]) -> bool:
    ranks = [leaf.shape.rank for leaf in _leaves(runs) if hasattr(leaf, "shape")]
    return case.replicas > 1 and (0 in ranks or None in ranks)


def _raises(case: Case, runs: Sequence[Run]) -> bool:
    return any(run.error for run in runs)


REASONS = (
    Reason("endless, with splits that are never read", "never ends: only the first", _is_endless),
    Reason("unknown rank", "of unknown rank, which cannot be sent", _unknown_rank),
    Reason("scalars of ragged rows", "keeps as a ragged tensor", _scalars_of_ragged),
    Reason("the first split is empty", "first split has no elements", _first_is_empty),
    Reason("splits of different types", "must have the same element_spec", _specs_differ),
    Reason("policy FILE that cannot be kept", "auto_shard_policy FILE, but", _has_policy),
    Reason("partitions do not divide a step", "does not divide the global batch", _uneven),
    Reason("replicas do not divide a step", "cannot divide a batch of", _uneven),
    Reason("scalars for several replicas", "cannot be divided among", _scalars),
    Reason("the entry point raises", "failed: ", _raises),
)
