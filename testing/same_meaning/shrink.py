"""Makes a failing case smaller while it fails in the same way."""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from testing.same_meaning.cases import Case
from testing.same_meaning.pipelines import grammar


def shrink(case: Case, fails: Callable[[Case], bool], seconds: float) -> Case:
    """Return the smallest case found.

    Args:
        case: a case that fails.
        fails: whether a case fails in the same way.
        seconds: limit of the search.
    """
    deadline = time.monotonic() + seconds
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(case):
            if time.monotonic() > deadline:
                return case
            if fails(candidate):
                case, smaller = candidate, True
                break
    return case


def candidates(case: Case) -> Iterator[Case]:
    """Yield cases that are smaller by one step, the largest steps first."""
    for pipeline in _smaller(case.pipeline):
        yield replace(case, pipeline=pipeline)
    simple = Case({})
    for name in ("trainers", "replicas", "epochs"):
        if getattr(case, name) != getattr(simple, name):
            yield replace(case, **{name: getattr(simple, name)})
    if case.read != simple.read and case.replicas == 1:
        yield replace(case, read=simple.read)
    for name in case.fields:
        yield replace(case, fields={k: v for k, v in case.fields.items() if k != name})
    if case.fields.get("partitions", 1) > 1:
        yield replace(case, fields={**case.fields, "partitions": case.trainers})


def _smaller(pipeline: grammar.Pipeline) -> Iterator[grammar.Pipeline]:
    """Yield smaller pipelines."""
    for number in range(len(list(grammar.nested(pipeline)))):
        yield from _changed(pipeline, number)


def _changed(pipeline: grammar.Pipeline, number: int) -> Iterator[grammar.Pipeline]:
    """Yield the pipeline with one of its nested pipelines changed."""
    part = list(grammar.nested(pipeline))[number]
    if grammar.SOURCES[part["source"][0]].nests:
        for inner in part["source"][1]:
            yield _with(
                pipeline, number, {"source": inner["source"], "ops": inner["ops"] + part["ops"]}
            )
    for place in range(len(part["ops"])):
        ops = part["ops"][:place] + part["ops"][place + 1 :]
        yield _with(pipeline, number, {"source": part["source"], "ops": ops})
    for source in _smaller_sources(part["source"]):
        yield _with(pipeline, number, {"source": source, "ops": part["ops"]})


def _with(pipeline: grammar.Pipeline, number: int, new: grammar.Pipeline) -> grammar.Pipeline:
    whole = copy.deepcopy(pipeline)
    part = list(grammar.nested(whole))[number]
    part["source"], part["ops"] = copy.deepcopy(new["source"]), copy.deepcopy(new["ops"])
    return whole


def _smaller_sources(source: list[Any]) -> Iterator[list[Any]]:
    name, *args = source
    if name in ("range", "ids", "records", "ragged", "sparse") and args[1] - args[0] > 4:
        yield [name, args[0], args[0] + (args[1] - args[0]) // 2]
    if args and isinstance(args[0], list) and args[0] and isinstance(args[0][0], int):
        lengths = args[0]
        if len(lengths) > 1:
            yield [name, lengths[: len(lengths) // 2], *args[1:]]
        if max(lengths) > 4:
            yield [name, [length // 2 for length in lengths], *args[1:]]
