"""`python -m distributed_input.client.timed_trainer JSON`: for `distributed-input bench`.

A trainer that only reads, as `connect(name).dataset()`. JSON has the name of the input and whether
its elements are batches: {"name", "batched"}. See `tfdata.timed_reading`.
"""

from __future__ import annotations

import json
import sys

from distributed_input.client.input import connect
from distributed_input.tfdata import timed_reading
from distributed_input.tfdata.timed_reading import TimedReader


def main() -> int:
    """Measure as standard input requests; return the exit status."""
    options = json.loads(sys.argv[1])
    answers = timed_reading.own_output()

    def opened() -> TimedReader:
        # It stays open until the process ends.
        dataset = connect(options["name"]).dataset()
        return TimedReader(dataset, batched=options["batched"])

    return timed_reading.serve(opened, sys.stdin, answers)


if __name__ == "__main__":
    sys.exit(main())
