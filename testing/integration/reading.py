"""Trainers that read: every consumer in a thread of this process, numpy only."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from distributed_input.client.input import Input
from distributed_input.client.reader import InputReader
from testing.integration.cluster import Sidecar

SECONDS = 90.0
"""For a whole read; the parts' own deadlines are shorter and say more."""

Batch = Any
T = TypeVar("T")


def connect(sidecar: Sidecar, name: str = "", timeout: float = 20.0) -> Input:
    """What `distributed_input.connect` does in the trainer beside this sidecar."""
    return Input(InputReader(sidecar.shared, name, timeout))


def at_once(calls: Sequence[Callable[[], T]]) -> list[T]:
    """The results of calls that run side by side."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(SECONDS) for future in futures]


def copied(batch: Batch) -> Batch:
    """A batch with memory of its own, to be kept."""
    if isinstance(batch, dict):
        return {key: copied(value) for key, value in batch.items()}
    return np.array(batch) if isinstance(batch, np.ndarray) else batch


def read(
    sidecars: Sequence[Sidecar], name: str = "", epochs: int = 1, steps: int | None = None
) -> list[list[list[Batch]]]:
    """What each consumer gets, as [consumer][epoch][step], of at most so many steps an epoch."""

    def reading(sidecar: Sidecar) -> list[list[Batch]]:
        with connect(sidecar, name) as data:
            return [
                [copied(batch) for batch in itertools.islice(data.numpy(), steps)]
                for _ in range(epochs)
            ]

    return at_once([lambda sidecar=sidecar: reading(sidecar) for sidecar in sidecars])


def ids(batches: Iterable[Batch]) -> list[int]:
    """The row ids of batches, in order."""
    return [int(row) for batch in batches for row in np.ravel(batch["id"])]


def global_steps(consumers: Sequence[Sequence[Batch]]) -> list[list[int]]:
    """The row ids of each step of an epoch over all consumers, sorted.

    All consumers must have the same number of steps: collectives would hang elsewhere.
    """
    counts = [len(batches) for batches in consumers]
    assert len(set(counts)) == 1, f"consumers have different numbers of steps: {counts}"
    return [sorted(ids(step)) for step in zip(*consumers, strict=True)]


def epoch(consumers: Sequence[Sequence[Sequence[Batch]]], number: int = 0) -> list[Any]:
    """One epoch of what `read` gave, as [consumer][step]."""
    return [epochs[number] for epochs in consumers]


def rows_of(consumers: Sequence[Sequence[Batch]]) -> dict[int, dict[str, bytes]]:
    """Each row's values by its id; the ids must differ."""
    found: dict[int, dict[str, bytes]] = {}
    for row, values in _rows(consumers):
        assert row not in found, f"row {row} came twice"
        found[row] = values
    return found


def _rows(consumers: Sequence[Sequence[Batch]]) -> Iterator[tuple[int, dict[str, bytes]]]:
    for batches in consumers:
        for batch in batches:
            for at, row in enumerate(batch["id"].tolist()):
                yield row, {key: value[at].tobytes() for key, value in batch.items()}
