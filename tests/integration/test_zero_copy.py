"""Batches are read where they lie, and a slot is used again only when nobody reads it any more."""

from __future__ import annotations

import collections
import gc
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.errors import DistributedInputError
from distributed_input.client.input import Input
from testing.integration import reading
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS

# Batches of 1 MiB and a little, so that the ring has room for 15; halves of it for two replicas.
# (Where a unit is small it is copied: that is quicker.)
WIDTH = 64 << 10
BATCH = 16
SLOT = BATCH * WIDTH
RING = 16 << 20
HELD = 8
ROWS = 50 * BATCH
WIDE = spec(
    "wide:wide", {"rows": ROWS, "width": WIDTH}, partitions=4, numSplits=4,
    globalBatchSize=BATCH, buffer="16Mi",
)  # fmt: skip


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    # The last have no epoch to read ahead into.
    return shared.add_sidecars(
        {n: {**WIDE, "epochs": {"g": 3, "h": 1, "i": 1, "j": 1}.get(n)} for n in "abcdefghij"}
    )[0]


def assert_intact(batch: Any, was: Any = None) -> None:
    """Every row has the bytes of its number, and is the row that it was."""
    numbers, content = np.asarray(batch["id"]), np.asarray(batch["bytes"])
    assert np.array_equal(content, np.broadcast_to((numbers % 251)[:, None], content.shape))
    if was is not None:
        assert np.array_equal(numbers, was)


def numbers_of(batches: list[Any]) -> list[Any]:
    """Copies of the row ids of batches that are held."""
    return [np.array(batch["id"]) for batch in batches]


def assert_all_intact(batches: list[Any], numbers: list[Any]) -> None:
    for batch, was in zip(batches, numbers, strict=True):
        assert_intact(batch, was)


def used(cluster: Cluster, name: str) -> float:
    """Bytes of an input's ring that are in use, as its sidecar last reported."""
    (found,) = [c.last.buffer_fill for c in cluster.status().consumers if c.last.job == name]
    return found * RING


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until something that is only reported now and then is so."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def ring_of(data: Input) -> tuple[int, int]:
    """Where the ring lies in this process: its address and size in bytes."""
    channel = data._reader._session.channel
    return channel.address, data._reader.welcome.ring_bytes


def address_of(tensor: Any) -> int:
    """Where a tensor's memory lies; numpy's view of an eager tensor on the CPU is no copy."""
    return int(np.asarray(memoryview(tensor)).__array_interface__["data"][0])


def in_ring(data: Input, address: int) -> bool:
    start, size = ring_of(data)
    return start <= address < start + size


def test_a_dense_tensor_is_the_ring(cluster: Cluster, sidecar: Sidecar) -> None:
    with reading.connect(sidecar, "a") as data:
        batch = next(iter(data.dataset()))
        for tensor in batch.values():
            assert in_ring(data, address_of(tensor))
        array = next(data.numpy())["bytes"]
        assert in_ring(data, array.__array_interface__["data"][0])


def test_a_replicas_tensor_is_the_ring(cluster: Cluster, sidecar: Sidecar) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with reading.connect(sidecar, "b") as data:
        batch = next(iter(data.distribute(strategy)))
        first, second = strategy.experimental_local_results(batch["bytes"])
        assert (first.shape, second.shape) == ((8, WIDTH), (8, WIDTH))
        assert in_ring(data, address_of(first))


def numpy_batches(data: Input) -> Iterator[Any]:
    return data.numpy()


def tensors(data: Input) -> Iterator[Any]:
    return iter(data.dataset())


def replicas(data: Input) -> Iterator[Any]:
    """What each of two replicas gets, one after the other."""
    strategy = tf.distribute.MirroredStrategy(CPUS)
    for batch in data.distribute(strategy):
        parts = {k: strategy.experimental_local_results(v) for k, v in batch.items()}
        yield from ({k: v[r] for k, v in parts.items()} for r in range(2))


WAYS: dict[str, Callable[[Input], Iterator[Any]]] = {
    "c": numpy_batches,
    "d": tensors,
    "e": replicas,
}


@pytest.mark.parametrize("name", WAYS)
def test_what_is_held_is_not_written_over(cluster: Cluster, sidecar: Sidecar, name: str) -> None:
    with reading.connect(sidecar, name) as data:
        batches = WAYS[name](data)
        held = list(itertools.islice(batches, 2 * HELD if name == "e" else HELD))
        were = numbers_of(held)
        count = 0
        for batch in batches:  # the ring goes round several times
            assert_intact(batch)
            count += len(batch["id"])
        assert count == ROWS - HELD * BATCH
        assert_all_intact(held, were)
        # Every other one goes back and is used again; the rest stays what it was.
        kept = held[::2]
        del held, batch, batches
        for batch in WAYS[name](data):
            assert_intact(batch)
        assert_all_intact(kept, were[::2])


def test_a_slice_keeps_its_slot(cluster: Cluster, sidecar: Sidecar) -> None:
    with reading.connect(sidecar, "f") as data:
        batches = data.numpy()
        rows = [np.asarray(next(batches)["bytes"])[3:5, 7:9] for _ in range(HELD)]
        expected = [row.copy() for row in rows]
        for batch in batches:
            assert_intact(batch)
        assert all(np.array_equal(*pair) for pair in zip(rows, expected, strict=True))


@pytest.mark.parametrize("ending", ["closed", "replaced", "refused"])
def test_what_is_held_outlives_its_reader(cluster: Cluster, sidecar: Sidecar, ending: str) -> None:
    """And is not written over by what a later reader of the same process gets."""
    data = reading.connect(sidecar, "g")
    batches = data.numpy()
    held = list(itertools.islice(batches, HELD))
    were = numbers_of(held)
    if ending == "closed":
        data.close()
    if ending == "refused":  # the sidecar ends the connection
        data._reader._session.channel.send(start={"generation": 9, "epoch": 10**6})
        with pytest.raises(DistributedInputError, match=r"spec\.epochs"):
            for _ in batches:
                pass
    with reading.connect(sidecar, "g") as later:
        for _ in range(2):
            assert sum(len(batch["id"]) for batch in later.numpy()) == ROWS
            assert_all_intact(held, were)
    # The ring is all there again once they are dropped, though the first reader still lives.
    del held, batches, _
    with reading.connect(sidecar, "g") as later:
        held = list(itertools.islice(later.numpy(), 14))
        assert_all_intact(held, numbers_of(held))
    data.close()


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_what_is_held_outlives_its_sidecar(cluster: Cluster, ending: str) -> None:
    inputs = {f"outlived-{ending}": WIDE}
    (sidecar,) = cluster.add_sidecars(inputs)
    with reading.connect(sidecar) as data:
        batches = data.numpy()
        held = list(itertools.islice(batches, HELD))
        were = numbers_of(held)
        sidecar.kill() if ending == "kill" else sidecar.stop()
        cluster.add_sidecars(inputs, folder=sidecar.shared)
        rest = 0
        for batch in batches:
            assert_intact(batch)
            rest += len(batch["id"])
        assert rest == ROWS - HELD * BATCH
        assert_all_intact(held, were)


@pytest.mark.parametrize(("name", "way"), [("h", numpy_batches), ("i", tensors), ("j", replicas)])
def test_releasing_everything_empties_the_ring(
    cluster: Cluster, sidecar: Sidecar, name: str, way: Callable[..., Any]
) -> None:
    with reading.connect(sidecar, name) as data:
        held = collections.deque(way(data), maxlen=HELD)
        eventually(lambda: used(cluster, name) >= HELD / 2 * SLOT)
        del held
        gc.collect()
        # The last few are told of with the next wait.
        eventually(lambda: used(cluster, name) < 8 * SLOT)
    eventually(lambda: used(cluster, name) == 0)
