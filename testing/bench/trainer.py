"""The process under test: a plain loop over a dataset, with its measurement.

Run `python -m testing.bench.trainer OPTIONS`. OPTIONS is a JSON object; it prints one JSON object.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from testing.bench.case import DATA_PLANES, LOCAL
from testing.bench.processes import (
    context_switches,
    cpu_seconds,
    memory,
    reset_peaks,
    switches_since,
)

PAGE = 4096


def main() -> None:
    """Measure the start and then the steady state, and print the measurements."""
    options = json.loads(sys.argv[1])
    pids = {"trainer": [os.getpid()], **options["pids"]}
    began = time.perf_counter()
    iterator = iter(_dataset(options))
    next(iterator)
    start = {"first_batch": time.perf_counter() - began}
    start |= _consume(iterator, options["first_seconds"])
    all_pids = [pid for some in pids.values() for pid in some]
    reset_peaks(all_pids)
    before = {role: cpu_seconds(some) for role, some in pids.items()}
    switches_before = {role: context_switches(some) for role, some in pids.items()}
    seen = _consume(iterator, options["seconds"])
    switches = {
        role: switches_since(switches_before[role], context_switches(some))
        for role, some in pids.items()
    }
    cpu = {role: cpu_seconds(some) - before[role] for role, some in pids.items()}
    usage = {role: memory(some) for role, some in pids.items()}
    del iterator  # stops the service's workers
    more = {"start": start, "cpu": cpu, "switches": switches, "memory": usage}
    print(json.dumps({**seen, **more}), flush=True)


def _dataset(options: dict[str, Any]) -> tf.data.Dataset:
    """Return the dataset as a user of the system creates it."""
    if options["system"] in DATA_PLANES:
        import distributed_input as di

        # It stays open until the process ends.
        return di.connect().dataset()
    module, name = options["target"].split(":")
    function = getattr(importlib.import_module(module), name)
    if options["system"] == LOCAL:
        dataset = function(tf.distribute.InputContext(), **options["args"])
        return dataset.prefetch(tf.data.AUTOTUNE)
    arguments = {**options["args"], **options["service_args"]}
    dataset = function(tf.distribute.InputContext(), **arguments)
    distribute = tf.data.experimental.service.distribute(
        processing_mode=tf.data.experimental.service.ShardingPolicy[options["sharding"]],
        service=options["address"],
        compression=options["compression"],
    )
    return dataset.apply(distribute).prefetch(tf.data.AUTOTUNE)


def _consume(iterator: Iterator[Any], seconds: float) -> dict[str, float]:
    """Take batches for this time, at least one. Read a byte of every page."""
    batches = rows = size = 0
    start = time.perf_counter()
    while (spent := time.perf_counter() - start) < seconds or not batches:
        batch = next(iterator)
        for leaf in tf.nest.flatten(batch, expand_composites=True):
            array = np.asarray(leaf)
            if array.dtype == object:
                size += sum(map(len, array))
                continue
            array.reshape(-1).view(np.uint8)[::PAGE].sum()
            size += array.nbytes
        rows += _rows(batch)
        batches += 1
    return {"seconds": spent, "batches": batches, "rows": rows, "bytes": size}


def _rows(batch: Any) -> int:
    """Return the number of rows in a batch, which has a dense column."""
    leaves = tf.nest.flatten(batch)
    return next(int(leaf.shape[0]) for leaf in leaves if isinstance(leaf, tf.Tensor))


if __name__ == "__main__":
    main()
