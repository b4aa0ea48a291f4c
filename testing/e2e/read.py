"""A trainer without TensorFlow that tells all that it was given; runs in pods, from a ConfigMap.

Prints a line of JSON an epoch: the rows, when a batch kept it waiting how long, and for how
long all of them together. It trains until
/tmp/last names an epoch that it has finished, so that whoever watches ends it; the argument, and
/tmp/step where it is there, say how many seconds its steps take.
"""

import json
import sys
import time
from pathlib import Path

import distributed_input

STALL_SECONDS = 0.2


def told(name, otherwise):
    """A number that was written for this trainer."""
    try:
        return float(Path("/tmp", name).read_text())
    except (FileNotFoundError, ValueError):
        return otherwise


def main():
    """Train."""
    with distributed_input.connect() as source:
        epoch = 0
        while epoch <= told("last", float("inf")):
            begun = time.time()
            rows: list[int] = []
            stalls: list[tuple[float, float, bool]] = []
            stalled = 0.0
            batches = source.numpy()
            while True:
                asked = time.time()
                batch = next(batches, None)
                waited = time.time() - asked
                stalled += waited
                if waited > STALL_SECONDS:
                    # Between two epochs trainers wait for one another, by way of the dispatcher.
                    between = batch is None or not rows
                    stalls.append((asked, waited, between))
                if batch is None:
                    break
                if not epoch and not rows:
                    print(json.dumps({"first": time.time()}), flush=True)
                rows += batch.tolist()
                time.sleep(told("step", float(sys.argv[1])))
            line = {"epoch": epoch, "rows": rows, "stalls": stalls, "stalled": stalled}
            print(json.dumps({**line, "begun": begun, "ended": time.time()}), flush=True)
            epoch += 1


main()
