"""Compares what the trainers saw with TensorFlow."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import tensorflow as tf

from testing.same_meaning.cases import Case
from testing.same_meaning.judgement import order, rows, steps
from testing.same_meaning.judgement.evidence import Difference, Evidence
from testing.same_meaning.pipelines import functions, grammar, python_sources
from testing.same_meaning.product import Epoch, Seen
from testing.same_meaning.reference import Reference

_OF_ANOTHER = re.compile(r"trainer \d+ of \d+ (has stopped|reads epoch)")


def differences(case: Case, seen: Seen, reference: Reference) -> list[Difference]:
    """Return all differences of a case that was not refused.

    Args:
        case: the case.
        seen: what its trainers saw.
        reference: what TensorFlow makes of the case.
    """
    evidence = Evidence(case, seen, reference)
    found = [*_decisions(evidence), *_spec(evidence), *_structure(evidence)]
    complete = True
    for number in range(case.epochs):
        epochs = [trainer[number] for trainer in seen.epochs]
        found += _end(evidence, epochs)
        failed = any(epoch.error for epoch in epochs)
        if evidence.error or failed:
            complete = False
            if failed and case.trainers > 1:
                break  # they go on in different epochs
            continue
        found += rows.differences(evidence, epochs, number)
        found += steps.differences(evidence, epochs, number)
        found += order.differences(evidence, epochs)
        found += order.noise(evidence, epochs)
    if complete:
        found += order.between_epochs(evidence)
    unique = {one.kind: one for one in reversed(found)}
    return list(unique.values())


def _decisions(evidence: Evidence) -> list[Difference]:
    """Compare what the product decided before the first row."""
    job, pipeline = evidence.job, evidence.case.pipeline
    certain = grammar.is_batched(pipeline)
    found = []
    wrong = certain is not None and evidence.batched != certain and not evidence.says_whole
    if evidence.by_rows and wrong:
        text = f"elements are {'batches' if certain else 'rows'}: batched={evidence.batched}"
        found.append(Difference("batches recognised wrongly", text))
    unsaid = job.infinite or not evidence.says_unknown_end
    if job.infinite != evidence.endless and unsaid and not evidence.error and not evidence.python:
        # Only running a pipeline can show that one that chooses is endless, or that one is empty.
        choosing = ("sample", "choose", "choose_random", "take_while")
        hidden = any(name in choosing for name in evidence.names)
        if job.infinite:
            hidden = grammar.may_be_empty(pipeline) or not any(r.elements for r in evidence.runs)
        text = f"the job is {'endless' if job.infinite else 'finite'}, the dataset is not"
        if not hidden:
            found.append(Difference("endless or not", text))
    return found


def _spec(evidence: Evidence) -> list[Difference]:
    """Compare the element_spec of the loop with the one of the dataset."""
    if evidence.seen.element_spec is None or evidence.case.replicas > 1 or evidence.python:
        return []
    expected = tf.nest.flatten(evidence.runs[0].spec)
    found = tf.nest.flatten(evidence.seen.element_spec)
    if len(found) != len(expected):
        return [Difference("element_spec", f"{len(found)} components for {len(expected)}")]
    return [
        Difference("element_spec", f"expected {one}, found {other}")
        for one, other in zip(expected, found, strict=True)
        if hasattr(one, "dtype") and not _fits(evidence, one, other)
    ]


def _structure(evidence: Evidence) -> list[Difference]:
    """Compare the names and the nesting of components."""
    expected, found = evidence.runs[0].structure, evidence.seen.structure
    if not expected or not found or expected == found:
        return []
    return [Difference("structure", f"expected {expected}, found {found}")]


def _fits(evidence: Evidence, expected: Any, found: Any) -> bool:
    if expected.dtype != found.dtype:
        return False
    if isinstance(expected, tf.RaggedTensorSpec) and expected.ragged_rank == 0:
        expected = tf.TensorSpec(expected.shape, expected.dtype)  # as TensorFlow's elements are
    if type(expected) is not type(found):
        return evidence.by_rows and isinstance(found, tf.RaggedTensorSpec)
    if not isinstance(expected, tf.TensorSpec):
        return True
    if expected.shape.rank is None or found.shape.rank is None:
        return bool(expected.shape.rank == found.shape.rank)
    inner, mine = expected.shape.as_list(), found.shape.as_list()
    if not evidence.by_rows:
        return bool(inner[1:] == mine[1:] and len(inner) == len(mine))
    return bool((inner[1:] if evidence.batched else inner) == mine[1:])


def _end(evidence: Evidence, epochs: Sequence[Epoch]) -> list[Difference]:
    """Compare how an epoch ended."""
    errors = [epoch.error for epoch in epochs if epoch.error is not None]
    errors.sort(key=lambda error: bool(_OF_ANOTHER.match(str(error))))  # the cause comes first
    allowed = python_sources.EXPECTED_TEXT.get(evidence.python)
    if errors and allowed:
        named = allowed in str(errors[0])
        return [] if named else [Difference("error without the cause", str(errors[0])[:400])]
    if evidence.error:
        hidden = errors or _meets_others(evidence)
        return [] if hidden else [Difference("no error", f"TensorFlow: {evidence.error}")]
    known = (_shapes_differ, _counts_differ, _of_tensorflow)
    if errors and any(holds(evidence, errors[0]) for holds in known):
        return []
    failed = errors and functions.FAILURE in str(errors[0])
    if failed and evidence.again is not None and "fail" in evidence.names:
        return []  # which rows come, and so whether one fails, is random
    if errors:
        return [Difference("error", f"{type(errors[0]).__name__}: {str(errors[0])[:600]}")]
    idle = any("of them get no rows" in one for one in evidence.job.warnings)
    ended = [not epoch.stopped for epoch in epochs]
    if evidence.endless and (all(ended) if idle else any(ended)):
        return [Difference("ended", "an endless dataset ended")]
    return []


def _meets_others(evidence: Evidence) -> bool:
    """Return whether an error of rows of different shapes may not occur in dealt batches.

    Each split batches rows of its own. TensorFlow fails in incomplete batches that it drops.
    """
    if "Cannot batch tensors with different shapes" not in evidence.error:
        return False
    return evidence.job.shard_policy == "DATA" and evidence.job.num_splits > 1


def _of_tensorflow(evidence: Evidence, error: Exception) -> bool:
    """Return whether TensorFlow fails likewise without the product, in other ways of reading.

    Behind batches of batches of ragged rows, any `map` fails. TensorFlow splits before the last
    batch, by files or rows, so that others meet in it: they may then have different shapes.
    """
    batches = sum(name in grammar.BATCHES for name in evidence.names)
    if batches + ("read_batches" in evidence.case.pipeline["source"]) < 2:
        return False
    split = evidence.job.shard_policy in ("DATA", "FILE")
    ragged = "Invalid ragged splits" in str(error)
    return ragged or (split and "Cannot batch tensors with different shapes" in str(error))


def _counts_differ(evidence: Evidence, error: Exception) -> bool:
    """Return whether replicas cannot share elements, whose components differ in their rows."""
    if "components of one element have different numbers of rows" not in str(error):
        return False
    elements = (e for runs in (evidence.runs, *evidence.others()) for r in runs for e in r.elements)
    return any(len({leaf.count for leaf in element}) > 1 for element in elements)


def _shapes_differ(evidence: Evidence, error: Exception) -> bool:
    """Return whether rows of different shapes were refused, which no batch can hold.

    If the user's own batches hold them, the refusal is a difference.
    """
    if evidence.again is not None and "different shapes" in str(error):
        return True  # which elements meet in a batch is random
    if "of one batch have shapes" not in str(error):
        return False
    shapes = {
        tuple(leaf.shape[1:] if evidence.batched else leaf.shape for leaf in element)
        for runs in (evidence.runs, *evidence.others())
        for run in runs
        for element in run.elements
    }
    return len(shapes) > 1
