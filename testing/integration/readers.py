"""Trainers that read with numpy: each consumer in a thread of this process."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import numpy as np

from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import Input
from testing.integration.cluster import Sidecar

SECONDS = 90.0
"""Timeout of a whole read. The product's timeouts are shorter and have better messages."""

Batch = Any
T = TypeVar("T")


def connect(
    sidecar: Sidecar,
    name: str = "",
    timeout: float = 20.0,
    *,
    lineage: bool = False,
    accept_changed_dataset: bool = False,
) -> Input:
    """Connect as `distributed_input.connect` does in the trainer beside this sidecar."""
    accepted = accept_changed_dataset
    return Input(
        Consumer(sidecar.shared, name, timeout, lineage=lineage, accept_changed_dataset=accepted)
    )


def run_concurrently(calls: Sequence[Callable[[], T]]) -> list[T]:
    """Run the calls at once and return their results."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(SECONDS) for future in futures]


def copy_batch(batch: Batch) -> Batch:
    """Return a batch with its own memory, which the caller can keep."""
    if isinstance(batch, dict):
        return {key: copy_batch(value) for key, value in batch.items()}
    return np.array(batch) if isinstance(batch, np.ndarray) else batch


def read(
    sidecars: Sequence[Sidecar], name: str = "", epochs: int = 1, steps: int | None = None
) -> list[list[list[Batch]]]:
    """Read as each consumer and return the batches as [consumer][epoch][step].

    Args:
        sidecars: one for each consumer.
        name: the input.
        epochs: number of epochs.
        steps: maximum number of steps in each epoch.
    """

    def read_epochs(sidecar: Sidecar) -> list[list[Batch]]:
        with connect(sidecar, name) as data:
            return [
                [copy_batch(batch) for batch in itertools.islice(data.numpy(), steps)]
                for _ in range(epochs)
            ]

    return run_concurrently([lambda sidecar=sidecar: read_epochs(sidecar) for sidecar in sidecars])


def ids(batches: Iterable[Batch]) -> list[int]:
    """Return the row ids of batches, in order."""
    return [int(row) for batch in batches for row in np.ravel(batch["id"])]


def global_steps(consumers: Sequence[Sequence[Batch]]) -> list[list[int]]:
    """Return the row ids of each step over all consumers, sorted.

    Raises AssertionError if consumers have different numbers of steps; collectives would hang.
    """
    counts = [len(batches) for batches in consumers]
    assert len(set(counts)) == 1, f"consumers have different numbers of steps: {counts}"
    return [sorted(ids(step)) for step in zip(*consumers, strict=True)]


def epoch(consumers: Sequence[Sequence[Sequence[Batch]]], number: int = 0) -> list[Any]:
    """Return one epoch of the result of `read`, as [consumer][step]."""
    return [epochs[number] for epochs in consumers]


def rows_of(consumers: Sequence[Sequence[Batch]]) -> dict[int, dict[str, bytes]]:
    """Return each row's values by its id. Raises AssertionError if an id occurs twice."""
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
