"""What the product makes of a case: real trainers, sidecars, worker and dispatcher."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DistributedInputError
from distributed_input.client.input import Input
from testing.integration.devices import CPUS
from testing.same_meaning.cases import ENTRY, ENTRY_POINT, PLAIN, Case
from testing.same_meaning.servers import Servers, connect
from testing.same_meaning.values import Element, element_of

Step = list[Element]
"""What the replicas of one trainer get."""


@dataclass
class Epoch:
    """One epoch of one trainer.

    Attributes:
        steps: what each step delivered.
        error: why it ended; None at its end.
        stopped: it was stopped after the requested number of steps.
    """

    steps: list[Step] = field(default_factory=list)
    error: Exception | None = None
    stopped: bool = False


@dataclass
class Seen:
    """What the trainers of a case saw.

    Attributes:
        refused: the error when the job was opened.
        epochs: of each trainer.
        job: the complete job.
        warnings: of the input.
        element_spec: of the dataset that the loop reads; None for numpy.
    """

    refused: Exception | None = None
    epochs: list[list[Epoch]] = field(default_factory=list)
    job: Any = None
    warnings: list[str] = field(default_factory=list)
    element_spec: Any = None


class Strategies:
    """One strategy for each number of replicas. Making one takes long."""

    def __init__(self) -> None:
        self._made: dict[int, tf.distribute.Strategy] = {}

    def of(self, replicas: int) -> tf.distribute.Strategy:
        if replicas not in self._made:
            made = tf.distribute.MirroredStrategy(CPUS) if replicas > 1 else None
            self._made[replicas] = made or tf.distribute.OneDeviceStrategy("CPU:0")
        return self._made[replicas]


strategies = Strategies()


class Trainer:
    """One trainer of a case."""

    def __init__(self, case: Case, connected: Input, dataset: Any) -> None:
        self.case, self.input = case, connected
        strategy = strategies.of(case.replicas) if case.read == "distribute" else None
        self._strategy = strategy
        self._read: Any = None
        if strategy is not None:
            self._read = connected.distribute(strategy, dataset)
        elif case.read == "dataset":
            self._read = connected.dataset(dataset)
        self.element_spec = getattr(self._read, "element_spec", None)

    def iterate(self) -> Iterator[Step]:
        """Yield the steps of an epoch."""
        if self._read is None:
            for value in self.input.numpy():
                yield [element_of(value)]
            return
        for value in self._read:
            if self._strategy is None:
                yield [element_of(value)]
            else:
                yield [element_of(one) for one in self._local(value)]

    def _local(self, value: Any) -> list[Any]:
        results = self._strategy.experimental_local_results
        parts = [results(part) for part in tf.nest.flatten(value)]
        count = max(len(part) for part in parts)
        columns = [part * count if len(part) < count else part for part in parts]
        return [tf.nest.pack_sequence_as(value, row) for row in zip(*columns, strict=True)]

    def epoch(self, most: int | None) -> Epoch:
        """Read an epoch, or the given number of steps of it."""
        epoch = Epoch()
        if most == 0:
            epoch.stopped = True
            return epoch
        try:
            for step in self.iterate():
                epoch.steps.append(step)
                if len(epoch.steps) == most:
                    epoch.stopped = True
                    break
        except Exception as error:  # noqa: BLE001  it is compared
            epoch.error = error
        return epoch


def fields_of(case: Case) -> dict[str, Any]:
    """Return the fields of the resource's spec."""
    fields = dict(case.fields)
    if case.api == ENTRY:
        fields |= {"entry_point": ENTRY_POINT, "args": {"text": case.text}}
    return fields


def dataset_of(case: Case) -> Any:
    """Return what the trainer passes to the product."""
    if case.api == ENTRY:
        return None
    return case.build(None) if case.api == PLAIN else case.build


def read(servers: Servers, case: Case, most: int | None) -> Seen:
    """Read a case with all its trainers.

    Args:
        servers: dispatcher and worker.
        case: the case.
        most: number of steps of each epoch; None: to its end.
    """
    seen = Seen()
    with servers.sidecars(case.trainers, **fields_of(case)) as folders, warnings.catch_warnings():
        warnings.simplefilter("ignore")

        def train(folder: Any) -> list[Epoch]:
            with connect(folder) as connected:
                try:
                    trainer = Trainer(case, connected, dataset_of(case))
                except DistributedInputError as error:
                    seen.refused = error
                    return []
                epochs = [trainer.epoch(most) for _ in range(case.epochs)]
                seen.job = connected._reader.opened.job  # noqa: SLF001
                seen.warnings = connected.warnings
                seen.element_spec = trainer.element_spec
                if not seen.job.num_splits:  # numpy() opens the job
                    seen.refused = epochs[0].error
                return epochs

        seen.epochs = each(train, folders)
    return seen


def each(function: Callable[[Any], Any], values: Any) -> list[Any]:
    """Call a function for each value, each in a thread."""
    if len(values) == 1:
        return [function(values[0])]
    with ThreadPoolExecutor(len(values)) as pool:
        return list(pool.map(function, values))


