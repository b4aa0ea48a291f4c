"""The trainers of a schedule: threads of this process that take steps in lockstep."""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from distributed_input.api.errors import UnavailableError
from distributed_input.client.input import Input
from distributed_input.client.reader import InputReader
from testing.chaos.schedule import Schedule

Rows = dict[str, Any]
"""Columns of one consumer's step, copied out of the ring."""


class Hung(Exception):
    """A consumer did not answer before the deadline."""


class _Thread:
    """Runs one call after the other in a thread that ends with the process."""

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
            except BaseException as error:  # noqa: BLE001 - the loop gets it
                future.set_exception(error)
            del item, future, function  # a batch must not outlive its step


class Consumer:
    """One trainer: connected to its sidecar from `connect` to `crash` or `close`."""

    def __init__(self, index: int, folder: Path, schedule: Schedule, job: str) -> None:
        self.index = index
        self._job = job
        self._folder, self._timeout = folder, schedule.timeout
        self._replicas, self._whole = schedule.topology.replicas, schedule.topology.whole
        self._input: Input | None = None
        self._batches: Iterator[Any] | None = None

    def connect(self, position: bytes | None) -> None:
        """Connect, and open the job; go on from `position` where there is one."""
        made = self._input = Input(InputReader(self._folder, "", self._timeout, self._job))
        made._open(None, self._replicas, None)
        if position is not None:
            made.restore(position)

    def rewind(self, position: bytes) -> None:
        """Go on from `position`, in this life, with the next epoch that begins."""
        self._required().restore(position)

    def begin(self) -> None:
        """Begin the next epoch."""
        made = self._required()
        generation = made._reader.begin()
        self._batches = made._numpy_batches(generation)

    def step(self) -> list[Rows] | None:
        """The units of a step; None at the epoch's end. A unit's memory is given back at once."""
        assert self._batches is not None
        units: list[Rows] = []
        for _ in range(1 if self._whole else self._replicas):
            batch = next(self._batches, None)
            if batch is None:
                assert not units, "an epoch ended within a step"
                return None
            units.append({name: np.array(column) for name, column in batch.items()})
        return units

    def position(self) -> bytes:
        """Where it stands."""
        return self._required().position()

    def crash(self) -> None:
        """The trainer's process is gone: its socket closes, and nothing is said before."""
        made, self._input, self._batches = self._input, None, None
        if made is not None:
            made._reader._session.error = UnavailableError("this trainer is dead")
            with contextlib.suppress(OSError):
                made._reader._session.channel._socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Close the input as a trainer does that still holds it: what is held is given back."""
        self._batches = None
        if self._input is not None:
            self._input.close()

    def forget(self) -> None:
        """Hold nothing any more: the connection ends."""
        self._input = self._batches = None

    def _required(self) -> Input:
        assert self._input is not None
        return self._input


@dataclass(frozen=True)
class Saved:
    """A checkpoint: positions of all consumers, and what the ledger had then."""

    positions: tuple[bytes, ...]
    epoch: int
    steps: int
    ended: bool


class Consumers:
    """All trainers of one life, from a start or restore to the end or a crash."""

    def __init__(
        self, folders: Sequence[Path], schedule: Schedule, deadline: float, job: str = ""
    ) -> None:
        self._deadline = deadline  # monotonic
        self._all = [Consumer(i, folder, schedule, job) for i, folder in enumerate(folders)]
        self._threads = [_Thread(f"consumer-{c.index}") for c in self._all]

    def __len__(self) -> int:
        return len(self._all)

    def connect(self, positions: Sequence[bytes] | None) -> None:
        """Connect all; restore where there is a position for each."""
        self._each(lambda c: c.connect(positions[c.index] if positions else None))

    def rewind(self, positions: Sequence[bytes]) -> None:
        """Let all go on from their positions."""
        self._each(lambda c: c.rewind(positions[c.index]))

    def begin(self) -> None:
        """Begin the next epoch everywhere."""
        self._each(lambda c: c.begin())

    def step(self) -> list[list[Rows] | None]:
        """One step of each."""
        return self._each(lambda c: c.step())

    def positions(self) -> tuple[bytes, ...]:
        """Where each stands."""
        return tuple(self._each(lambda c: c.position()))

    def crash(self) -> None:
        """All die at once."""
        self._each(lambda c: c.crash())
        self.end()

    def close(self) -> None:
        """Close all; their connections stay for as long as they are held."""
        self._each(lambda c: c.close())

    def end(self) -> None:
        """Forget all and end the threads, once they have done what they do."""
        for thread, consumer in zip(self._threads, self._all, strict=True):
            thread.call(consumer.forget)
            thread.end()

    def stuck(self) -> list[str]:
        """Threads that did not end."""
        for thread in self._threads:
            thread.thread.join(5)
        return [t.thread.name for t in self._threads if t.thread.is_alive()]

    def _each(self, do: Callable[[Consumer], Any]) -> list[Any]:
        def bound(consumer: Consumer) -> Callable[[], Any]:
            return lambda: do(consumer)

        calls = [t.call(bound(c)) for t, c in zip(self._threads, self._all, strict=True)]
        done, late = wait(calls, max(0.0, self._deadline - time.monotonic()), "FIRST_EXCEPTION")
        for call in done:
            call.result()
        if late:
            raise Hung(f"consumers {[i for i, call in enumerate(calls) if call in late]}")
        return [call.result() for call in calls]
