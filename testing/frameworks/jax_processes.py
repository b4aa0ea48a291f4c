"""One of the processes of a JAX program over a mesh of four CPU devices.

    python -m testing.frameworks.jax_processes INDEX COUNT PORT STEPS STATE OUT

It reads this number of steps, from the position in the file STATE if it exists, writes the new
position there, and the rows of each global step to OUT. Process 0 writes.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

INDEX, COUNT, PORT, STEPS = map(int, sys.argv[1:5])
os.environ["XLA_FLAGS"] = f"--xla_force_host_platform_device_count={4 // COUNT}"

import jax  # noqa: E402 - it reads the flags
import numpy as np  # noqa: E402
from jax.experimental import multihost_utils  # noqa: E402
from jax.sharding import NamedSharding, PartitionSpec  # noqa: E402

import distributed_input  # noqa: E402

STATE, OUT = map(Path, sys.argv[5:7])


def main() -> None:
    """Read the steps."""
    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    if COUNT > 1:
        jax.distributed.initialize(f"127.0.0.1:{PORT}", COUNT, INDEX)
    rows = NamedSharding(jax.make_mesh((4,), ("data",)), PartitionSpec("data"))
    total = jax.jit(lambda batch: batch["id"].sum())
    steps: list[list[int]] = []
    with distributed_input.connect("even", timeout=20) as data:
        batches = data.jax(rows)
        if STATE.exists():
            batches.set_state(STATE.read_bytes())
        while len(steps) < STEPS:
            for batch in batches:
                numbers = np.sort(np.asarray(whole(batch["id"]))).tolist()
                assert int(total(batch)) == sum(numbers), "a collective sees all rows"
                steps.append(numbers)
                if len(steps) == STEPS:
                    break
        state = batches.get_state()
    if INDEX == 0:
        STATE.write_bytes(state)
        OUT.write_text(json.dumps(steps))


def whole(array: jax.Array) -> np.ndarray:
    """Return a global array, gathered from all processes."""
    return multihost_utils.process_allgather(array, tiled=True)


if __name__ == "__main__":
    main()
