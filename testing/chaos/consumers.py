"""The trainers of a schedule: threads of this process that take steps in lockstep."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import trainer_pb2
from distributed_input.trainer.consumer import Consumer as InputConsumer
from distributed_input.trainer.input import Input
from testing.chaos.schedule import Schedule

Rows = dict[str, Any]
"""Columns of one consumer's step, copied out of shared memory."""


class ConsumerTimeout(Exception):
    """A consumer did not return before the deadline."""


class _Thread:
    """A daemon thread that runs calls in order."""

    def __init__(self, name: str) -> None:
        self._calls: queue.SimpleQueue[tuple[Future[Any], Callable[[], Any]] | None]
        self._calls = queue.SimpleQueue()
        self.thread = threading.Thread(target=self._run, name=name, daemon=True)
        self.thread.start()

    def call(self, function: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        self._calls.put((future, function))
        return future

    def end(self) -> None:
        self._calls.put(None)

    def _run(self) -> None:
        while (item := self._calls.get()) is not None:
            future, function = item
            try:
                future.set_result(function())
            except BaseException as error:  # noqa: BLE001 - the caller of the future gets it
                future.set_exception(error)
            del item, future, function  # a batch must not outlive its step


class Consumer:
    """One trainer, connected to its sidecar from `connect` to `crash` or `close`.

    `rank`: what it passes as its data rank, if several processes read the same batches.
    """

    def __init__(
        self,
        index: int,
        folder: Path,
        schedule: Schedule,
        job: str,
        rank: trainer_pb2.Rank | None = None,
    ) -> None:
        self.index = index
        self._job, self._rank = job, rank
        self._folder, self._timeout = folder, schedule.timeout
        self._replicas, self._whole = schedule.topology.replicas, schedule.topology.whole
        self._input: Input | None = None
        self._batches: Iterator[Any] | None = None

    def connect(self, position: bytes | None) -> None:
        """Connect and open the job. Restore `position` if there is one."""
        consumer = InputConsumer(self._folder, "", self._timeout, self._job, rank=self._rank)
        made = self._input = Input(consumer)
        made._open(None, self._replicas, None)
        if position is not None:
            made.restore(position)

    def rewind(self, position: bytes) -> None:
        """Restore `position` in the same process, from the next epoch that begins."""
        self._required().restore(position)

    def set_weights(self, weights: Sequence[int]) -> None:
        """Set the weights of a mixture from the next step on."""
        self._required().set_weights({f"s{at}": one for at, one in enumerate(weights)})

    def begin(self) -> None:
        """Begin the next epoch."""
        made = self._required()
        generation = made._consumer.begin()
        self._batches = made._consumer.arrays(generation)

    def step(self) -> list[Rows] | None:
        """Return copies of the units of a step, or None at the end of the epoch."""
        assert self._batches is not None
        units: list[Rows] = []
        for _ in range(self._replicas):
            batch = next(self._batches, None)
            if batch is None:
                return self._last_step(units)
            units.append({name: np.array(column) for name, column in batch.items()})
        return units

    def _last_step(self, units: list[Rows]) -> list[Rows] | None:
        """Return the units of a step that has met the end of the epoch; None if there are none."""
        assert self._whole or not units, "an epoch ended within a step"
        return units or None

    def position(self) -> bytes:
        """Return the current position."""
        return self._required().position()

    def check(self) -> None:
        """Raise the error of the epoch, if it has one, as the next step would."""
        epoch = self._required()._consumer._epoch
        if epoch is not None:
            epoch.check_error()

    def crash(self) -> None:
        """Close the socket without a message, as the end of the trainer's process does."""
        made, self._input, self._batches = self._input, None, None
        if made is not None:
            made._consumer._session.error = UnavailableError("this trainer is dead")
            with contextlib.suppress(OSError):
                made._consumer._session.channel._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the input and release the batches that it holds."""
        self._batches = None
        if self._input is not None:
            self._input.close()

    def forget(self) -> None:
        """Drop all references; the connection ends."""
        self._input = self._batches = None

    def _required(self) -> Input:
        assert self._input is not None
        return self._input


@dataclass(frozen=True)
class Checkpoint:
    """Positions of all consumers, and the state of the ledger at that time."""

    positions: tuple[bytes, ...]
    epoch: int
    steps: int
    ended: bool


class ConsumerGroup(ABC):
    """The trainers of a job between a start or restore and the end or a crash."""

    @abstractmethod
    def __len__(self) -> int: ...

    @abstractmethod
    def each(self, function: Callable[[Consumer], Any]) -> list[Any]:
        """Call a function for each consumer and return the results. Raises the first error."""

    def connect(self, positions: Sequence[bytes] | None) -> None:
        """Connect all consumers; restore their positions if given."""
        self.each(lambda c: c.connect(positions[c.index] if positions else None))

    def rewind(self, positions: Sequence[bytes]) -> None:
        """Restore all positions in the same processes."""
        self.each(lambda c: c.rewind(positions[c.index]))

    def set_weights(self, weights: Sequence[int]) -> None:
        """Set the weights of a mixture on all consumers."""
        self.each(lambda c: c.set_weights(weights))

    def begin(self) -> None:
        """Begin the next epoch on all consumers."""
        self.each(lambda c: c.begin())

    def step(self) -> list[list[Rows] | None]:
        """Take one step on each consumer."""
        return self.each(lambda c: c.step())

    def positions(self) -> tuple[bytes, ...]:
        """Return the position of each consumer."""
        return tuple(self.each(lambda c: c.position()))

    def close(self) -> None:
        """Close all inputs. Their connections stay open while references remain."""
        self.each(lambda c: c.close())


class Consumers(ConsumerGroup):
    """Trainers in threads of this process."""

    def __init__(
        self, folders: Sequence[Path], schedule: Schedule, deadline: float, job: str = ""
    ) -> None:
        self._deadline = deadline  # monotonic
        self._all = [Consumer(i, folder, schedule, job) for i, folder in enumerate(folders)]
        self._threads = [_Thread(f"consumer-{c.index}") for c in self._all]

    def __len__(self) -> int:
        return len(self._all)

    def crash(self) -> None:
        """Crash all consumers at once."""
        self.each(lambda c: c.crash())
        self.end()

    def end(self) -> None:
        """Drop all consumers and end the threads after their current call."""
        for thread, consumer in zip(self._threads, self._all, strict=True):
            thread.call(consumer.forget)
            thread.end()

    def stuck(self) -> list[str]:
        """Return the names of the threads that did not end."""
        for thread in self._threads:
            thread.thread.join(5)
        return [t.thread.name for t in self._threads if t.thread.is_alive()]

    def each(self, function: Callable[[Consumer], Any]) -> list[Any]:
        """Call a function for each consumer, each in its thread. Raises ConsumerTimeout, too."""
        pairs = zip(self._threads, self._all, strict=True)
        calls = [thread.call(partial(function, consumer)) for thread, consumer in pairs]
        done, late = wait(calls, max(0.0, self._deadline - time.monotonic()), "FIRST_EXCEPTION")
        for call in done:
            call.result()
        if late:
            raise ConsumerTimeout(
                f"consumers {[i for i, call in enumerate(calls) if call in late]}"
            )
        return [call.result() for call in calls]
