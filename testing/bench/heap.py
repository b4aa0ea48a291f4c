"""Page faults and CPU time of a worker's elements, with and without memory that malloc keeps.

`python -m testing.bench.heap` makes elements of 4 MiB of eight splits in turn, as a worker does,
and copies each one once. Each setting runs in a process of its own.
"""

from __future__ import annotations

import argparse
import resource
import subprocess
import sys
import time

import numpy as np
import tensorflow as tf

from distributed_input.runtime import heap

_ROW_BYTES, _ROWS, _SPLITS = 128 << 10, 32, 8
_WARM_UP, _STEPS = 20, 80


def main() -> None:
    """Measure both settings in turn, or one of them in this process."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.heap", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="Default: 3")
    parser.add_argument("--setting", choices=["kept", "default"], help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.setting:
        measure(options.setting)
        return
    for _ in range(options.rounds):
        for setting in ("default", "kept"):
            command = [sys.executable, "-m", "testing.bench.heap", "--setting", setting]
            subprocess.run(command, check=True)


def measure(setting: str) -> None:
    """Print page faults per MiB and CPU seconds per GB of this process."""
    if setting == "kept":
        heap.keep_freed_memory()
    row = tf.zeros([_ROW_BYTES], tf.uint8)
    rows = tf.data.Dataset.from_tensors(row).repeat().batch(_ROWS).prefetch(1)
    splits = [iter(rows) for _ in range(_SPLITS)]
    sink = np.zeros(_ROWS * _ROW_BYTES, np.uint8)

    def step() -> None:
        for split in splits:
            sink[:] = next(split).__array__().reshape(-1)

    for _ in range(_WARM_UP):
        step()
    before, began = resource.getrusage(resource.RUSAGE_SELF), time.process_time()
    for _ in range(_STEPS):
        step()
    cpu, after = time.process_time() - began, resource.getrusage(resource.RUSAGE_SELF)
    size = _STEPS * _SPLITS * sink.nbytes
    faults = (after.ru_minflt - before.ru_minflt) / (size / (1 << 20))
    print(
        f"{setting}: {faults:.1f} page faults per MiB, {cpu / (size / 1e9):.2f} CPU s per GB, "
        f"{after.ru_maxrss >> 10} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
