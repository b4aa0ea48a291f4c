"""`python -m distributed_input.trainer.timed_trainer JSON`: for `distributed-input bench`.

A trainer that only reads, as `connect(name).dataset()`. JSON has the name of the input and whether
its elements are batches: {"name", "batched"}. See `graph.timed_reading`.
"""

from __future__ import annotations

import json
import sys

from distributed_input.graph import timed_reading
from distributed_input.graph.timed_reading import TimedReader
from distributed_input.trainer.input import connect


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
