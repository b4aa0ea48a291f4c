"""JAX's loop with Orbax: the position as JSON or, with an argument, by Grain's handler."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import grain.python as grain
import jax
import numpy as np
import orbax.checkpoint as ocp
from jax.sharding import NamedSharding, PartitionSpec

import distributed_input
from testing.frameworks.resumption import EPOCHS, Ledger, check, refusal

HANDLER = sys.argv[1:]


def train(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with a checkpoint of Orbax after each step."""
    batches = data.jax()
    params = {"weight": jax.numpy.ones([]), "epoch": jax.numpy.zeros([], int)}
    with ocp.CheckpointManager(
        folder, options=ocp.CheckpointManagerOptions(max_to_keep=1)
    ) as saved:
        if resume:
            step = saved.latest_step()
            restored = saved.restore(step, args=ocp.args.Composite(**arguments(params, batches)[1]))
            params = restored["params"]
            if not HANDLER:
                batches.set_state(restored["position"]["batches"].encode())
        step = int(saved.latest_step() or 0)
        for epoch in range(int(params["epoch"]), EPOCHS):
            for batch in batches:
                ledger.add(batch["id"])
                weight = update(params["weight"], batch["square"])
                params = {"weight": weight, "epoch": jax.numpy.asarray(epoch)}
                step += 1
                if ledger.is_due:
                    saved.save(step, args=ocp.args.Composite(**arguments(params, batches)[0]))
                    saved.wait_until_finished()


def arguments(params: Any, batches: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return what saves and what restores the parameters and the position."""
    save = {"params": ocp.args.StandardSave(params)}
    restore = {"params": ocp.args.StandardRestore(params)}
    if HANDLER:
        save["batches"] = grain.PyGrainCheckpointSave(batches)
        restore["batches"] = grain.PyGrainCheckpointRestore(batches)
    else:
        save["position"] = ocp.args.JsonSave({"batches": batches.get_state().decode()})
        restore["position"] = ocp.args.JsonRestore()
    return save, restore


@jax.jit
def update(weight: Any, square: Any) -> Any:
    """Do one step."""
    return weight * 0.5 + square.sum()


def keep(name: str, sharding: Any) -> Iterator[tuple[Any, Any]]:
    """Yield batches and copies of them, made when they came."""
    with distributed_input.connect(name, timeout=20) as data:
        batches = data.jax(sharding)
        for _ in range(EPOCHS):
            for batch in batches:
                yield batch, jax.tree.map(np.array, batch)


def check_memory() -> None:
    """Check that arrays view shared memory, are not overwritten, and may be donated."""
    devices = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
    donate = jax.jit(lambda square: square + 1, donate_argnums=0)
    for sharding in (None, devices):
        kept = []
        for number, (batch, copy) in enumerate(keep("even", sharding)):
            if number % 4 == 0:  # the others free their slots
                kept.append((batch, copy))
            assert (donate(batch["square"] + 0) == copy["square"] + 1).all()
        assert len(kept) > 4
        for batch, copy in kept:
            jax.tree.map(np.testing.assert_array_equal, batch, copy)
    with distributed_input.connect("even", timeout=20) as data:
        refused = data.jax(devices)
        batch = next(refused)
        assert batch["square"].sharding.is_equivalent_to(devices, 1)
    halves = NamedSharding(jax.make_mesh((2,), ("data",), devices=jax.devices()[:2]), devices.spec)
    with distributed_input.connect("train", timeout=20) as data:
        # The last batch may have three rows.
        assert "remainder" in refusal(lambda: next(data.jax(halves)))


if __name__ == "__main__":
    check(train)
    check_memory()
