"""What TensorFlow makes of a case in one process."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from testing.same_meaning import cases, traced
from testing.same_meaning.cases import PLAIN, Case
from testing.same_meaning.judgement.values import Element, element_of, structure_of, whole
from testing.same_meaning.pipelines import functions, grammar

MOST_ELEMENTS = 800
"""A pipeline with more elements is taken for endless."""
_REPEATED = 100
"""One that may be endless is, if this number of elements in a row were seen before."""


class DoesNotFit(Exception):
    """TensorFlow does not accept the pipeline, so the case has no meaning."""


@dataclass(frozen=True)
class Run:
    """One run of a pipeline to its end.

    Attributes:
        elements: its elements.
        error: the error at its end; "" for none.
        endless: it was stopped after `MOST_ELEMENTS`.
        spec: the element_spec; None for a Python source.
        structure: of the elements; "" if there are none.
    """

    elements: Sequence[Element]
    error: str = ""
    endless: bool = False
    spec: Any = None
    structure: str = ""


def untuned(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return a dataset whose iterators can be deleted at any time.

    Any thread may be the one in which Python deletes an iterator, and TensorFlow 2.21 may wait for
    a minute there for the thread that tunes it.
    """
    options = tf.data.Options()
    options.autotune.enabled = False
    return dataset.with_options(options)


def run(dataset: Any, may_be_endless: bool) -> Run:
    """Read a dataset, or a Python source."""
    if isinstance(dataset, tf.data.Dataset):
        dataset = untuned(dataset)
    elements: list[Element] = []
    spec = getattr(dataset, "element_spec", None)
    structure = "" if spec is None else structure_of(spec)
    seen: set[str] = set()
    newest = 0
    try:
        for count, value in enumerate(dataset, 1):
            elements.append(element_of(value))
            structure = structure or structure_of(value)
            if may_be_endless and (row := whole(elements[-1])) not in seen:
                seen.add(row)
                newest = count
            if count > MOST_ELEMENTS or (may_be_endless and count > newest + _REPEATED):
                return Run(elements, "", True, spec, structure)
    except Exception as error:  # noqa: BLE001  of TensorFlow, or of a Python source
        return Run(elements, str(error)[:300] or type(error).__name__, False, spec, structure)
    return Run(elements, "", False, spec, structure)


class Context:
    """The input context of a split, as dataset_fn sees it."""

    def __init__(self, splits: int, split: int, partitions: int) -> None:
        self.num_input_pipelines, self.input_pipeline_id = splits, split
        self._partitions = partitions

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        return global_batch_size // self._partitions


class Reference:
    """The runs of one case. Each is made once: building a pipeline takes longer than reading it."""

    def __init__(self, case: Case) -> None:
        self._case = case
        self._built: dict[Any, Any] = {}
        self._runs: dict[Any, Run] = {}
        self._may_be_endless = "endless" in grammar.names_of(case.pipeline)

    def build(self, splits: int = 1, split: int = 0, partitions: int = 1, seed: int = 1) -> Any:
        """Build the pipeline of a split.

        The splits share the seeds of their ops, as they must if an op before the shard is random.

        Raises:
            DoesNotFit: TensorFlow refuses it.
        """
        context: Any = Context(splits, split, partitions)
        tf.random.set_seed(seed)
        try:
            with warnings.catch_warnings(), traced.reused(), functions.own_paths():
                warnings.simplefilter("ignore")
                return self._case.build(None if self._case.api == PLAIN else context)
        except Exception as error:
            raise DoesNotFit(f"{type(error).__name__}: {str(error)[:200]}") from error

    def accept(self) -> None:
        """Build the pipeline of one split. Raises DoesNotFit."""
        self._built[1, 0, 1, 1] = self.build()

    def splits(self, count: int, partitions: int, seed: int = 1) -> list[Run]:
        """Return the run of each split; of a plain dataset, the only one."""
        if self._case.api == PLAIN:
            return [self._run(1, 0, 1, seed)]
        return [self._run(count, split, partitions, seed) for split in range(count)]

    def _run(self, *key: int) -> Run:
        if key not in self._runs:
            dataset = self._built.pop(key, None)
            self._runs[key] = run(
                self.build(*key) if dataset is None else dataset, self._may_be_endless
            )
        return self._runs[key]


def in_order(case: Case) -> Case:
    """Return a case whose pipeline draws no order: rows come one source after the other."""
    removed = ("shuffle", "apply", "resample_uneven")
    instead = dict.fromkeys(grammar.CHOOSING, "one_after_another")
    pipeline = cases.without(case, removed, instead).pipeline
    return Case(**{**vars(case), "pipeline": pipeline})


def is_random(case: Case) -> bool:
    """Return whether two runs of the pipeline may differ."""
    return grammar.is_random(case.pipeline)
