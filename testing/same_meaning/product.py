"""What the product makes of a case: real trainers, sidecars, worker and dispatcher."""

from __future__ import annotations

import functools
import threading
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DistributedInputError
from distributed_input.api.proto import types_pb2
from distributed_input.trainer.input import Input
from testing.integration.devices import CPUS
from testing.same_meaning.cases import ENTRY, ENTRY_POINT, PLAIN, Case, build
from testing.same_meaning.judgement.values import Element, element_of, structure_of
from testing.same_meaning.reference import untuned
from testing.same_meaning.servers import Servers, connect

_START_SECONDS = 120.0
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
        structure: of the first step; "" if there is none.
        opened: the first trainer has opened the job, or was refused.
        together: all trainers wait here when they have opened it.
    """

    refused: Exception | None = None
    epochs: list[list[Epoch]] = field(default_factory=list)
    job: Any = None
    warnings: list[str] = field(default_factory=list)
    element_spec: Any = None
    structure: str = ""
    opened: threading.Event = field(default_factory=threading.Event)
    together: threading.Barrier | None = None

    def wait_for_others(self) -> None:
        """Wait until all trainers are here: one that left early would end the job of the others."""
        if self.together is not None:
            self.together.wait(_START_SECONDS)


class Strategies:
    """The strategies of trainers, each of its own, as in processes of their own.

    They are used again by the next case, because making one takes long.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._free: dict[int, list[tf.distribute.Strategy]] = {}

    def take(self, replicas: int) -> tf.distribute.Strategy:
        """Return a strategy that no other trainer uses."""
        with self._lock:
            free = self._free.setdefault(replicas, [])
            if free:
                return free.pop()
        if replicas == 1:
            return tf.distribute.OneDeviceStrategy("CPU:0")
        return tf.distribute.MirroredStrategy(CPUS)

    def give_back(self, strategy: tf.distribute.Strategy) -> None:
        """Let other trainers use a strategy."""
        with self._lock:
            self._free[strategy.num_replicas_in_sync].append(strategy)


strategies = Strategies()


class Trainer:
    """One trainer of a case."""

    def __init__(self, case: Case, connected: Input, dataset: Any) -> None:
        self.case, self.input = case, connected
        strategy = strategies.take(case.replicas) if case.read == "distribute" else None
        self._strategy = strategy
        self._read: Any = None
        if strategy is not None:
            self._read = connected.distribute(strategy, dataset)
        elif case.read == "dataset":
            self._read = untuned(connected.dataset(dataset))
        else:
            connected._open(dataset, 1, None)  # `numpy` takes no dataset
        self.element_spec = getattr(self._read, "element_spec", None)
        self.structure = ""

    def close(self) -> None:
        """Let other trainers use the strategy."""
        if self._strategy is not None:
            strategies.give_back(self._strategy)

    def iterate(self) -> Iterator[Step]:
        """Yield the steps of an epoch."""
        if self._read is None:
            for value in self.input.numpy():
                self.structure = self.structure or structure_of(value)
                yield [element_of(value)]
            return
        for value in self._read:
            self.structure = self.structure or structure_of(value)
            if self._strategy is None:
                yield [element_of(value)]
            else:
                yield [element_of(one) for one in self._local(value)]

    def _local(self, value: Any) -> list[Any]:
        assert self._strategy is not None
        results = self._strategy.experimental_local_results
        parts = [results(part) for part in tf.nest.flatten(value)]
        count = max(len(part) for part in parts)
        columns = [part * count if len(part) < count else part for part in parts]
        return [tf.nest.pack_sequence_as(value, row) for row in zip(*columns, strict=True)]

    def epoch(self, most: int | None, fault: Callable[[int], None] = lambda _: None) -> Epoch:
        """Read an epoch, or the given number of steps of it. Call `fault` after each step."""
        epoch = Epoch()
        if most == 0:
            epoch.stopped = True
            return epoch
        try:
            for step in self.iterate():
                epoch.steps.append(step)
                fault(len(epoch.steps))
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


@functools.lru_cache(maxsize=1)
def _plain(text: str) -> Any:
    """Return the dataset that all trainers of a case pass. Tracing it takes long."""
    return build(text, None)


def dataset_of(case: Case) -> Any:
    """Return what the trainer passes to the product."""
    if case.api == ENTRY:
        return None
    return _plain(case.text) if case.api == PLAIN else case.build


def read(servers: Servers, case: Case, most: int | None) -> Seen:
    """Read a case with all its trainers.

    Args:
        servers: dispatcher and worker.
        case: the case.
        most: number of steps of each epoch; None: to its end.
    """
    seen, name = Seen(together=threading.Barrier(case.trainers)), servers.new_name()
    dataset_of(case)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if case.fault not in RESTORES:
            fault = faults(case, servers)
            with servers.sidecars(name, case.trainers, **fields_of(case)) as folders:
                seen.epochs = each(lambda folder: _epochs(case, seen, folder, most, fault), folders)
            return seen
        with servers.sidecars(name, case.trainers, **fields_of(case)) as folders:
            first = each(lambda folder: _before(case, seen, folder), folders)
            if seen.refused is not None:
                return seen
            if case.fault == "restore":
                rest = _after_all(case, seen, folders, first, most)
        if case.fault == "restore_new":
            with servers.sidecars(name, case.trainers, **fields_of(case)) as folders:
                rest = _after_all(case, seen, folders, first, most)
    seen.epochs = [[_together(one.epoch, other)] for one, other in zip(first, rest, strict=True)]
    return seen


RESTORES = ("restore", "restore_new")


def faults(case: Case, servers: Servers) -> Callable[[int], None]:
    """Return what trainers call after each step: at one step, the worker is replaced."""
    lock = threading.Lock()
    done: list[bool] = []

    def fault(step: int) -> None:
        with lock:
            if case.fault == "worker" and step == case.at and not done:
                done.append(True)
                servers.replace_worker()

    return fault


def _epochs(
    case: Case, seen: Seen, folder: Any, most: int | None, fault: Callable[[int], None]
) -> list[Epoch]:
    with connect(folder) as connected:
        trainer = _trainer(case, seen, connected)
        if trainer is None:
            return []
        if case.fault == "again":
            trainer.epoch(case.at)  # an iterator that is abandoned
        epochs = [trainer.epoch(most, fault) for _ in range(case.epochs)]
        _record(seen, connected, trainer)
        trainer.close()
        return epochs


def _trainer(case: Case, seen: Seen, connected: Input) -> Trainer | None:
    """Return a trainer; None if the dataset is refused. The first trainer registers the dataset."""
    if connected._consumer.welcome.consumer:
        seen.opened.wait(_START_SECONDS)
    try:
        if seen.refused is not None:
            return None
        return Trainer(case, connected, dataset_of(case))
    except DistributedInputError as error:
        seen.refused = error
        return None
    finally:
        seen.opened.set()
        seen.wait_for_others()


def _record(seen: Seen, connected: Input, trainer: Trainer) -> None:
    seen.job = connected._consumer.opened.job
    seen.warnings = connected.warnings
    seen.element_spec = trainer.element_spec
    seen.structure = trainer.structure


@dataclass
class _Saved:
    """The first part of an epoch, and the position behind it; None: the epoch is over."""

    epoch: Epoch
    position: bytes | None


def _before(case: Case, seen: Seen, folder: Any) -> _Saved:
    """Take some steps and save the position, as a loop that is stopped does."""
    with connect(folder) as connected:
        trainer = _trainer(case, seen, connected)
        if trainer is None:
            return _Saved(Epoch(), None)
        epoch = trainer.epoch(case.at)
        _record(seen, connected, trainer)
        trainer.close()
        if not epoch.stopped:
            return _Saved(epoch, None)
        count = case.at if case.read == "dataset" else None
        return _Saved(epoch, connected.position(count))


def _after_all(
    case: Case, seen: Seen, folders: list[Any], saved: list[_Saved], most: int | None
) -> list[Epoch]:
    """Read the rest of the epoch in new connections, from a position of one of the trainers."""
    positions = [one.position for one in saved]
    if seen.job.mode != types_pb2.PARALLEL_EPOCHS:
        positions = [next(filter(None, positions), None)] * len(folders)

    def after(folder: Any, position: bytes | None) -> Epoch:
        if position is None:  # it has ended
            seen.wait_for_others()
            return Epoch()
        with connect(folder) as connected:
            connected.restore(position)
            trainer = _trainer(case, seen, connected)
            if trainer is None:
                return Epoch()
            epoch = trainer.epoch(most)
            trainer.close()
            return epoch

    return each(after, folders, positions)


def _together(one: Epoch, other: Epoch) -> Epoch:
    return Epoch(one.steps + other.steps, one.error or other.error, other.stopped)


def each(function: Callable[..., Any], *values: Sequence[Any]) -> list[Any]:
    """Call a function for the values of each trainer, each in a thread."""
    if len(values[0]) == 1:
        return [function(*(value[0] for value in values))]
    with ThreadPoolExecutor(len(values[0])) as pool:
        return list(pool.map(function, *values))
