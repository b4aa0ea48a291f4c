"""`python -m distributed_input.worker.datasets.in_process JSON`: for `distributed-input bench`.

Reads an entry point's dataset in this process, as a training program without DistributedInput
would: one pipeline, with the batch size of all trainers and a prefetch. JSON has the entry point
the batch size and the packing: {"target", "args", "path", "seed", "batch", "packing"}. See
`graph.timed_reading`.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.graph import batching, timed_reading, type_specs
from distributed_input.graph.analysis.batches import find_batches
from distributed_input.graph.definition import canonical
from distributed_input.graph.definition.datasets import main_scope
from distributed_input.graph.timed_reading import TimedReader
from distributed_input.graph.user_code import SplitInputContext
from distributed_input.worker.datasets import entry_points


@dataclass(frozen=True)
class _Iterables:
    """What an entry point returns that is no tf.data.Dataset; each epoch calls it again."""

    entry: types_pb2.EntryPoint
    seed: int

    def __iter__(self) -> Iterator[Any]:
        return iter(entry_points.call(self.entry, SplitInputContext(1, 0, 1), self.seed))


def open_reader(options: Mapping[str, Any]) -> TimedReader:
    """Call the entry point as the only pipeline of the only trainer; return its reader.

    `batch` is the resource's global batch size or None. `packing` has the fields of
    types_pb2.Packing, or is None.

    Raises:
        DistributedInputError: see `entry_points.call`.
    """
    entry = types_pb2.EntryPoint(
        target=options["target"],
        path=options["path"] or "",
        args_json=json.dumps(options["args"]),
    )
    if options["packing"]:
        entry.packing.MergeFrom(types_pb2.Packing(**options["packing"]))
    context = SplitInputContext(1, 0, 1)
    made: Iterable[Any] = entry_points.call(entry, context, options["seed"])
    asked, given = context.global_batch_size, options["batch"]
    if not isinstance(made, tf.data.Dataset):
        return TimedReader(_Iterables(entry, options["seed"]), batched=asked is not None)
    if given and not asked:
        batched = _is_batched(made)
        element = type_specs.from_tf(made.element_spec)
        row = element.unbatched() if batched else element
        made = batching.batch_rows(made, row, batched, given)
    return TimedReader(made.prefetch(tf.data.AUTOTUNE), batched=bool(asked or given))


def _is_batched(dataset: tf.data.Dataset) -> bool:
    try:
        return find_batches(main_scope(canonical.serialize(dataset))).batched
    except DatasetFnError:  # a generator has no graph
        return False


def main() -> int:
    """Measure as standard input requests; return the exit status."""
    options = json.loads(sys.argv[1])
    answers = timed_reading.own_output()
    return timed_reading.serve(lambda: open_reader(options), sys.stdin, answers)


if __name__ == "__main__":
    sys.exit(main())
