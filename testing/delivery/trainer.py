"""The simulated trainers: processes that read their input and take steps when they are called."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from distributed_input.api.proto import trainer_pb2
from distributed_input.link.trainer.slots import Batch
from distributed_input.rows.decode import decode
from distributed_input.rows.elements import ElementSpec
from distributed_input.trainer.input import Input
from testing.chaos.consumers import Consumer, ConsumerGroup, Rows
from testing.chaos.schedule import Fault, Schedule
from testing.delivery.virtual.primitives import Condition, Event, Thread
from testing.delivery.world import World


class TrainerDied(Exception):
    """A trainer's process ended."""

    def __init__(self, fault: Fault | None = None) -> None:
        super().__init__("a trainer died")
        self.fault = fault


class PrefetchingConsumer(Consumer):
    """A trainer whose iterator runs ahead of the loop, as TensorFlow's native iterators do.

    The loop counts its steps, so that a position is that of the loop (see `consumer.count_steps`).

    Args:
        prefetch: units that the iterator's thread reads ahead.
    """

    def __init__(
        self,
        index: int,
        folder: Path,
        schedule: Schedule,
        job: str,
        rank: trainer_pb2.Rank | None,
        prefetch: int,
    ) -> None:
        super().__init__(index, folder, schedule, job, rank)
        self._prefetch = prefetch
        self._steps = self._steps_before = self._iterators = 0
        self._queue: _Queue | None = None

    @property
    def iterators(self) -> int:
        """The number of iterators that were created, which is the number of the newest one."""
        return self._iterators

    def requested(self, iterator: int) -> int:
        """Return the steps that were requested from one of the two newest iterators."""
        return self._steps if iterator == self._iterators else self._steps_before

    def invalidate(self) -> None:
        """Do nothing: the loop creates a new iterator after a restore."""

    def begin(self) -> None:
        """Begin the next epoch, in a new thread; the thread of the last one ends."""
        made = self._required()
        made._consumer.count_steps(self)
        self._iterators += 1
        self._steps_before, self._steps = self._steps, 0
        generation = made._consumer.begin()
        if self._queue is not None:
            self._queue.close()
        self._queue = queue = _Queue(self._prefetch)
        batches = self._single_units(made, generation)
        Thread(target=lambda: queue.fill(batches), name="prefetch").start()

    def _single_units(self, made: Input, generation: int) -> Iterator[Any]:
        """Return the units of an epoch. TensorFlow gets small ones of fixed size in bursts."""
        spec = made._consumer.spec
        if self._whole or not spec.is_static or any(leaf.is_string for leaf in spec.leaves):
            return made._consumer.arrays(generation)
        return self._units_of_bursts(spec, made._consumer.bursts(generation))

    @staticmethod
    def _units_of_bursts(spec: ElementSpec, bursts: Iterator[list[Batch]]) -> Iterator[Any]:
        for burst in bursts:
            copies = [
                decode(spec, unit.rows, [np.array(buffer) for buffer in unit.buffers])
                for unit in burst
            ]
            del burst
            yield from copies

    def step(self) -> list[Rows] | None:
        """Return the units of a step, or None at the end of the epoch."""
        assert self._queue is not None
        self._steps += 1
        units: list[Rows] = []
        for _ in range(self._replicas):
            unit = self._queue.get()
            if unit is None:
                return self._last_step(units)
            units.append(unit)
        return units

    def close(self) -> None:
        """Close the input; the iterator's thread ends."""
        if self._queue is not None:
            self._queue.close()
        super().close()


class _Queue:
    """The units that an iterator has read ahead."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._units: deque[Rows] = deque()
        self._changed = Condition()
        self._ended = self._closed = False
        self._error: Exception | None = None

    def fill(self, batches: Any) -> None:
        """Read ahead until the end of the epoch, an error, or `close`."""
        try:
            for batch in batches:
                unit = {name: np.array(column) for name, column in batch.items()}
                del batch
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or len(self._units) < self._limit)
                    if self._closed:
                        return
                    self._units.append(unit)
                    self._changed.notify_all()
        except Exception as error:  # noqa: BLE001  the loop gets it
            self._error = error.with_traceback(None)
        with self._changed:
            self._ended = True
            self._changed.notify_all()

    def get(self) -> Rows | None:
        """Return the next unit, or None at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._units or self._ended)
            if self._units:
                self._changed.notify_all()
                return self._units.popleft()
        if self._error is not None:
            raise self._error
        return None

    def close(self) -> None:
        """Let the thread end."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class Trainer:
    """The process of one trainer, which runs calls one after another."""

    def __init__(self, world: World, job: str, index: int, reader: int, done: Event) -> None:
        name = f"trainer{job}{index}" + (f"-{reader}" if reader else "")
        self.process = world.new_process(name)
        self.process.endpoints[self] = None
        self.index = index
        self.result: Any = None
        self.error: Exception | None = None
        self.is_done = False
        self._done, self._called = done, Event()
        self._call: Callable[[Consumer], Any] | None = None
        folder, schedule, prefetch = world.folder_of(index), world.schedule, world.delivery.prefetch
        values = index, folder, schedule, job, _data_rank(world, index, reader)
        self.consumer = PrefetchingConsumer(*values, prefetch) if prefetch else Consumer(*values)
        self.process.spawn(self._run, "loop")

    def call(self, function: Callable[[Consumer], Any]) -> None:
        """Let the process call a function."""
        self.result, self.error, self.is_done = None, None, False
        self._call = function
        self._called.set()

    def _run(self) -> None:
        while True:
            self._called.wait()
            self._called.clear()
            assert self._call is not None
            try:
                self.result = self._call(self.consumer)
            except Exception as error:  # noqa: BLE001  raised where the result is used
                self.error = error.with_traceback(None)
            self.is_done = True
            self._done.set()

    def process_died(self) -> None:
        """Wake the loop that waits for this trainer."""
        del self.consumer
        self._done.set()

    def process_paused(self) -> None:
        """Do nothing."""

    process_resumed = process_paused


def _data_rank(world: World, index: int, reader: int) -> trainer_pb2.Rank | None:
    """Return what a process passes as its rank or data rank; None if its sidecar has only it."""
    readers, part = world.delivery.readers, world.sidecars[index]
    if readers == 1 and world.sidecars.count(part) == 1:
        return None
    return trainer_pb2.Rank(
        index=index,
        count=len(world.sidecars),
        source="the simulation",
        requested=True,
        readers=readers if readers > 1 else 0,
        reader=index * readers + reader,
    )


class Trainers(ConsumerGroup):
    """Trainers in simulated processes: one for each consumer.

    `reader`: which one, if several processes read the batches of a consumer.
    """

    def __init__(self, world: World, job: str, reader: int = 0) -> None:
        self._done = Event()
        count = len(world.sidecars)
        self.all = [Trainer(world, job, index, reader, self._done) for index in range(count)]

    def __len__(self) -> int:
        return len(self.all)

    def each(self, function: Callable[[Consumer], Any]) -> list[Any]:
        """Call a function in each trainer and return the results.

        Raises TrainerDied if a process has ended, and the first error of a trainer.
        """
        for trainer in self.all:
            if trainer.process.alive:
                trainer.call(function)
        while True:
            self._done.clear()
            if not all(trainer.process.alive for trainer in self.all):
                raise TrainerDied
            for trainer in self.all:
                if trainer.is_done and trainer.error is not None:
                    raise trainer.error
            if all(trainer.is_done for trainer in self.all):
                results = [trainer.result for trainer in self.all]
                for trainer in self.all:
                    trainer.result = None
                return results
            self._done.wait()

    def kill(self) -> None:
        """End all processes."""
        for trainer in self.all:
            trainer.process.kill()
