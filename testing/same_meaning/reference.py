"""What TensorFlow makes of a case in one process."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from testing.same_meaning import cases, grammar
from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.values import Element, element_of

MOST_ELEMENTS = 800
"""A pipeline with more elements is taken for endless."""


class DoesNotFit(Exception):
    """TensorFlow does not accept the pipeline, so the case has no meaning."""


@dataclass(frozen=True)
class Run:
    """One run of a pipeline to its end.

    Attributes:
        elements: its elements.
        error: the error at its end; "" for none.
        endless: it was stopped after `MOST_ELEMENTS`.
    """

    elements: Sequence[Element]
    error: str = ""
    endless: bool = False


def run(dataset: tf.data.Dataset, most: int = MOST_ELEMENTS) -> Run:
    """Read a dataset."""
    elements: list[Element] = []
    try:
        for value in dataset:
            elements.append(element_of(value))
            if len(elements) > most:
                return Run(elements[:most], endless=True)
    except Exception as error:  # noqa: BLE001  of TensorFlow, or of a Python source
        return Run(elements, str(error)[:300] or type(error).__name__)
    return Run(elements)


def build(case: Case, context: tf.distribute.InputContext | None = None) -> tf.data.Dataset:
    """Build the pipeline of a case.

    Raises:
        DoesNotFit: TensorFlow refuses it.
    """
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return case.build(context)
    except Exception as error:
        raise DoesNotFit(f"{type(error).__name__}: {str(error)[:200]}") from error


class Context:
    """The input context of a split, as dataset_fn sees it."""

    def __init__(self, splits: int, split: int, partitions: int) -> None:
        self.num_input_pipelines, self.input_pipeline_id = splits, split
        self._partitions = partitions

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        return global_batch_size // self._partitions


def splits(case: Case, count: int, partitions: int, seed: int) -> list[Run]:
    """Return the run of each split; of a plain dataset, the only one.

    The splits share the seeds of their ops, as they must if an op before the shard is random.
    """
    if case.api == PLAIN:
        tf.random.set_seed(seed)
        return [run(build(case))]
    runs = []
    for split in range(count):
        tf.random.set_seed(seed)
        context: Any = Context(count, split, partitions)
        runs.append(run(build(case, context)))
    return runs


def in_order(case: Case) -> Case:
    """Return a case whose pipeline draws no order: rows come one source after the other."""
    pipeline = cases.without(case, ("shuffle", "apply"), {"sample": "one_after_another"}).pipeline
    return Case(**{**vars(case), "pipeline": pipeline})


def is_random(case: Case) -> bool:
    """Return whether two runs of the pipeline may differ."""
    return grammar.is_random(case.pipeline)
