"""A trainer without TensorFlow that reports every row. It runs in pods, from a ConfigMap.

For each epoch it prints one line of JSON: the rows, the time and length of each stall, and the
seconds of all waits together. It stops after the epoch in /tmp/last, which the test writes. The
argument is the seconds of a training step. If /tmp/step exists, it replaces the argument.
"""

import json
import sys
import time
from pathlib import Path

import distributed_input

STALL_SECONDS = 0.2


def read_setting(name, default):
    """Return a number that the test wrote for this trainer."""
    try:
        return float(Path("/tmp", name).read_text())
    except (FileNotFoundError, ValueError):
        return default


def main():
    """Read epochs and print a record of each."""
    with distributed_input.connect() as source:
        epoch = 0
        while epoch <= read_setting("last", float("inf")):
            started = time.time()
            rows: list[int] = []
            stalls: list[tuple[float, float, bool]] = []
            stalled = 0.0
            batches = source.numpy()
            while True:
                requested = time.time()
                batch = next(batches, None)
                wait_seconds = time.time() - requested
                stalled += wait_seconds
                if wait_seconds > STALL_SECONDS:
                    # Between two epochs, the dispatcher makes trainers wait for each other.
                    between_epochs = batch is None or not rows
                    stalls.append((requested, wait_seconds, between_epochs))
                if batch is None:
                    break
                if not epoch and not rows:
                    print(json.dumps({"first": time.time()}), flush=True)
                rows += batch.tolist()
                time.sleep(read_setting("step", float(sys.argv[1])))
            line = {"epoch": epoch, "rows": rows, "stalls": stalls, "stalled": stalled}
            print(json.dumps({**line, "begun": started, "ended": time.time()}), flush=True)
            epoch += 1


main()
