"""Batches are views of shared memory, and a slot is reused only after its last reader."""

from __future__ import annotations

import collections
import gc
import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
import tensorflow as tf

from distributed_input.api.environment import DIR_ENV
from distributed_input.api.errors import DistributedInputError
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS
from testing.processes.forks import REPO

# Batches of slightly more than 1 MiB, so that 15 fit; half of that for two replicas.
# (Small units are copied, because that is faster.)
WIDTH = 64 << 10
BATCH = 16
SLOT = BATCH * WIDTH
RING = 16 << 20
HELD = 8
ROWS = 50 * BATCH


def wide_spec(rows: int) -> Any:
    return spec(
        "wide:wide", {"rows": rows, "width": WIDTH}, partitions=4, numSplits=4,
        globalBatchSize=BATCH, buffer="16Mi",
    )  # fmt: skip


WIDE = wide_spec(ROWS)


@pytest.fixture(scope="module")
def sidecar(shared: Cluster) -> Sidecar:
    # The last inputs have no further epoch to read ahead.
    return shared.add_sidecars(
        {n: {**WIDE, "epochs": {"g": 3, "h": 1, "i": 1, "j": 1}.get(n)} for n in "abcdefghij"}
    )[0]


def assert_intact(batch: Any, numbers_before: Any = None) -> None:
    """Check that every row has the bytes of its number, and the number that it had."""
    numbers, content = np.asarray(batch["id"]), np.asarray(batch["bytes"])
    assert np.array_equal(content, np.broadcast_to((numbers % 251)[:, None], content.shape))
    if numbers_before is not None:
        assert np.array_equal(numbers, numbers_before)


def numbers_of(batches: list[Any]) -> list[Any]:
    """Return copies of the row ids of held batches."""
    return [np.array(batch["id"]) for batch in batches]


def assert_all_intact(batches: list[Any], numbers: list[Any]) -> None:
    for batch, before in zip(batches, numbers, strict=True):
        assert_intact(batch, before)


def used(cluster: Cluster, name: str) -> float:
    """Return the bytes in use of an input's shared memory, as its sidecar last reported."""
    (found,) = [c.last.buffer_fill for c in cluster.status().consumers if c.last.job == name]
    return found * RING


def eventually(holds: Callable[[], bool], seconds: float = 20.0) -> None:
    """Wait until a condition holds that is only reported periodically."""
    deadline = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def slots_of(data: Input) -> tuple[int, int]:
    """Return the address and size of the shared memory in this process."""
    slots = data._consumer._session.channel._slots
    assert slots is not None
    return slots.address, data._consumer.welcome.slots_bytes


def address_of(tensor: Any) -> int:
    """Return the address of a tensor's memory.

    Numpy's view of an eager CPU tensor is not a copy.
    """
    return int(np.asarray(memoryview(tensor)).__array_interface__["data"][0])


def in_ring(data: Input, address: int) -> bool:
    start, size = slots_of(data)
    return start <= address < start + size


def test_a_dense_tensor_is_a_view_of_shared_memory(cluster: Cluster, sidecar: Sidecar) -> None:
    with readers.connect(sidecar, "a") as data:
        batch = next(iter(data.dataset()))
        for tensor in batch.values():
            assert in_ring(data, address_of(tensor))
        array = next(data.numpy())["bytes"]
        assert in_ring(data, array.__array_interface__["data"][0])


def test_a_replicas_tensor_is_a_view_of_shared_memory(cluster: Cluster, sidecar: Sidecar) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    with readers.connect(sidecar, "b") as data:
        batch = next(iter(data.distribute(strategy)))
        first, second = strategy.experimental_local_results(batch["bytes"])
        assert (first.shape, second.shape) == ((8, WIDTH), (8, WIDTH))
        assert in_ring(data, address_of(first))


def numpy_batches(data: Input) -> Iterator[Any]:
    return data.numpy()


def tensors(data: Input) -> Iterator[Any]:
    return iter(data.dataset())


def replicas(data: Input) -> Iterator[Any]:
    """Yield the batches of each of two replicas, one after another."""
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
def test_held_batches_are_not_overwritten(cluster: Cluster, sidecar: Sidecar, name: str) -> None:
    with readers.connect(sidecar, name) as data:
        batches = WAYS[name](data)
        held = list(itertools.islice(batches, 2 * HELD if name == "e" else HELD))
        numbers_before = numbers_of(held)
        count = 0
        for batch in batches:  # the slots are reused several times
            assert_intact(batch)
            count += len(batch["id"])
        assert count == ROWS - HELD * BATCH
        assert_all_intact(held, numbers_before)
        # Every second slot is released and reused; the others do not change.
        kept = held[::2]
        del held, batch, batches
        for batch in WAYS[name](data):
            assert_intact(batch)
        assert_all_intact(kept, numbers_before[::2])


def test_a_slice_keeps_its_slot(cluster: Cluster, sidecar: Sidecar) -> None:
    with readers.connect(sidecar, "f") as data:
        batches = data.numpy()
        rows = [np.asarray(next(batches)["bytes"])[3:5, 7:9] for _ in range(HELD)]
        expected = [row.copy() for row in rows]
        for batch in batches:
            assert_intact(batch)
        assert all(np.array_equal(*pair) for pair in zip(rows, expected, strict=True))


def test_a_trainer_may_overwrite_its_batches(cluster: Cluster) -> None:
    """The buffer has four slots, so that every slot is overwritten and used again many times."""
    rows, epochs, ways = 20 * BATCH, 3, ["numpy_function", "py_function", "loop"]
    sidecar = {"bufferBytes": 4 * SLOT + (64 << 10), "timeoutSeconds": 30}
    inputs = {"overwritten": {**wide_spec(rows), "sidecar": sidecar}}
    folder = cluster.add_sidecars(inputs)[0].shared
    module = "testing.integration.in_place_trainer"
    command = [sys.executable, "-m", module, str(rows), str(epochs), *ways]
    path = os.pathsep.join(filter(None, [os.environ.get("PYTHONPATH"), str(REPO)]))
    env = {**os.environ, DIR_ENV: str(folder), "PYTHONPATH": path}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, f"{done.returncode} in {done.stdout}: {done.stderr[-3000:]}"
    assert done.stdout.split() == ways


@pytest.mark.parametrize("ending", ["closed", "replaced", "refused"])
def test_held_batches_outlive_their_reader(cluster: Cluster, sidecar: Sidecar, ending: str) -> None:
    """A later reader of the same process does not overwrite them."""
    data = readers.connect(sidecar, "g")
    batches = data.numpy()
    held = list(itertools.islice(batches, HELD))
    numbers_before = numbers_of(held)
    if ending == "closed":
        data.close()
    if ending == "refused":  # the sidecar ends the connection
        data._consumer._session.channel.send(start={"generation": 9, "epoch": 10**6})
        with pytest.raises(DistributedInputError, match=r"spec\.epochs"):
            for _ in batches:
                pass
    with readers.connect(sidecar, "g") as later:
        for _ in range(2):
            assert sum(len(batch["id"]) for batch in later.numpy()) == ROWS
            assert_all_intact(held, numbers_before)
    # All slots are free after the batches are dropped, although the first reader still exists.
    del held, batches, _
    with readers.connect(sidecar, "g") as later:
        held = list(itertools.islice(later.numpy(), 14))
        assert_all_intact(held, numbers_of(held))
    data.close()


@pytest.mark.parametrize("ending", ["kill", "stop"])
def test_held_batches_outlive_their_sidecar(cluster: Cluster, ending: str) -> None:
    inputs = {f"outlived-{ending}": WIDE}
    (sidecar,) = cluster.add_sidecars(inputs)
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        held = list(itertools.islice(batches, HELD))
        numbers_before = numbers_of(held)
        sidecar.kill() if ending == "kill" else sidecar.stop()
        cluster.add_sidecars(inputs, folder=sidecar.shared)
        rest = 0
        for batch in batches:
            assert_intact(batch)
            rest += len(batch["id"])
        assert rest == ROWS - HELD * BATCH
        assert_all_intact(held, numbers_before)


@pytest.mark.parametrize(("name", "way"), [("h", numpy_batches), ("i", tensors), ("j", replicas)])
def test_releasing_all_batches_frees_all_slots(
    cluster: Cluster, sidecar: Sidecar, name: str, way: Callable[..., Any]
) -> None:
    with readers.connect(sidecar, name) as data:
        held = collections.deque(way(data), maxlen=HELD)
        eventually(lambda: used(cluster, name) >= HELD / 2 * SLOT)
        del held
        gc.collect()
        # The client reports the last releases with its next wait.
        eventually(lambda: used(cluster, name) < 8 * SLOT)
    eventually(lambda: used(cluster, name) == 0)
