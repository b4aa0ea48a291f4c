"""What pipelines are made of, how they are drawn, and how they are written as text.

A pipeline is a value of JSON: `{"source": [name, *args], "ops": [[name, *args], ...]}`. An argument
may be another pipeline. `text` writes it as the Python expression that a user would write.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

Pipeline = dict[str, Any]

SHARD = "context.num_input_pipelines, context.input_pipeline_id"
"""The arguments of a shard by the input context, as text."""
_SEARCHING = ("filter", "unique", "resample", "group_sum", "group_by_window", "bucket", "skip")


@dataclass(frozen=True)
class Part:
    """A source or a transformation.

    Attributes:
        weight: how often it is drawn; 0: only by other rules.
        draw: draws its arguments.
        text: Python text for its arguments.
        nests: it contains other pipelines.
    """

    weight: int
    draw: Callable[[Draw, int], list[Any]]
    text: Callable[..., str]
    nests: bool = False


SOURCES: dict[str, Part] = {}
"""All sources by name; see `sources`."""
OPS: dict[str, Part] = {}
"""All transformations by name; see `transformations`."""


class Draw:
    """Draws arguments. Each source gets numbers of its own, so that rows can be told apart."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self._start = 1

    def numbers(self, count: int) -> tuple[int, int]:
        start = self._start
        self._start += 1000 * (count // 1000 + 1)
        return start, start + count

    def pick(self, *values: Any) -> Any:
        return self.dice.choice(values)

    def pipeline(self, depth: int, ops: int) -> Pipeline:
        """Draw a pipeline with at most this number of ops."""
        names = [name for name, one in SOURCES.items() for _ in range(one.weight)]
        if depth <= 0:
            names = [name for name in names if not SOURCES[name].nests]
        name = self.dice.choice(names)
        source = [name, *SOURCES[name].draw(self, depth)]
        made = [self.op(depth) for _ in range(self.dice.randint(0, ops))]
        pipeline = {"source": source, "ops": made}
        if "endless" in names_of(pipeline):  # an endless search for the next element hangs
            made[:] = [op for op in made if op[0] not in _SEARCHING]
        return pipeline

    def python(self) -> Pipeline:
        """Draw a Python source."""
        return {"source": ["python", *SOURCES["python"].draw(self, 0)], "ops": []}

    def op(self, depth: int) -> list[Any]:
        """Draw a transformation."""
        names = [name for name, one in OPS.items() for _ in range(one.weight)]
        name = self.dice.choice(names)
        if OPS[name].nests and depth <= 0:
            name = "map"
        return [name, *OPS[name].draw(self, depth)]


def text(pipeline: Pipeline) -> str:
    """Return a pipeline as a Python expression."""
    name, *args = pipeline["source"]
    parts = [SOURCES[name].text(*args)]
    parts += [OPS[name].text(*args) for name, *args in pipeline["ops"]]
    return "".join(parts)


def nested(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield a pipeline and those that it contains."""
    yield pipeline
    for part in (pipeline["source"], *pipeline["ops"]):
        for argument in part[1:]:
            for one in argument if isinstance(argument, list) else [argument]:
                if isinstance(one, dict):
                    yield from nested(one)


def names_of(pipeline: Pipeline) -> list[str]:
    """Return the names of all sources and transformations. A map counts as its function."""
    found = []
    for one in nested(pipeline):
        source = one["source"]
        found.append(source[1] if source[0] == "python" else source[0])
        found += [op[1] if op[0] == "map" else op[0] for op in one["ops"]]
    return found


def maps(pipeline: Pipeline) -> list[list[Any]]:
    """Return all maps with their arguments."""
    return [op for one in nested(pipeline) for op in one["ops"] if op[0] == "map"]
