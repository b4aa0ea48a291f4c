"""How well splits shuffle and mix rows, beside the same pipeline in one process.

    python -m testing.bench.shuffles [--rows 20000] [--splits 32]

No other processes are started. The splits run as in a worker. The order is that of `order`:
the deal of the splits to partitions, and steps that take the same number of rows from each
partition. Prints a Markdown table, with the values of the splits and of one process:

- "Windows": the mean number of windows of 32 neighbouring rows of the source that a batch covers.
  Neighbours are often alike. A uniform shuffle covers almost as many windows as a batch has rows.
- "Share": the standard deviation of the share of one source, or of one class, in a batch. It is
  0.061 for independent choices if the share is 0.6.
"""

from __future__ import annotations

import argparse
import warnings
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distributed_input.api.proto import types_pb2
from distributed_input.graph.export import export_job
from distributed_input.graph.user_code import fixed_randomness
from distributed_input.order import splits as assignment
from distributed_input.worker.datasets.split_opener import SplitOpener

PARTITIONS, BATCH, WINDOW, SEED = 8, 64, 32, 7
ROWS, SPLITS = 20_000, 32
Order: TypeAlias = NDArray[np.int64]
Data: TypeAlias = tf.data.Dataset
Pipeline: TypeAlias = Callable[[Any, int], Data]
"""Returns the rows of a split as numbers, by its context and the number of rows."""


def main() -> None:
    """Measure all pipelines, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m testing.bench.shuffles", description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--splits", type=int, default=SPLITS)
    options = parser.parse_args()
    print("| Pipeline | Windows | in one process | Share | in one process |")
    print("|---|---|---|---|---|")
    for name, pipeline in PIPELINES.items():
        orders = in_splits(pipeline, options.rows, options.splits), alone(pipeline, options.rows)
        cells = [f"{windows(order):.1f}" for order in orders]
        cells += [f"{share_deviation(order):.3f}" for order in orders]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


def shard(data: Data, context: Any) -> Data:
    """Return the part of a split."""
    return data.shard(context.num_input_pipelines, context.input_pipeline_id)


def _sources(context: Any, rows: int) -> list[Data]:
    """Return the parts of a split of three sources, without an end."""
    return [shard(Data.range(k, rows, 3), context).repeat().shuffle(64) for k in range(3)]


def _sampled(context: Any, rows: int, **seed: int) -> Data:
    mixed = Data.sample_from_datasets(_sources(context, rows), [0.6, 0.3, 0.1], **seed)
    return mixed.take(rows // context.num_input_pipelines)


def _chosen(context: Any, rows: int) -> Data:
    choice = Data.random(seed=3).map(lambda number: number % 3)
    mixed = Data.choose_from_datasets(_sources(context, rows), choice)
    return mixed.take(rows // context.num_input_pipelines)


def _resampled(context: Any, rows: int) -> Data:
    data = shard(Data.range(rows), context).shuffle(64)
    target, initial = [0.6, 0.4], [1 / 3, 2 / 3]
    data = data.rejection_resample(
        lambda row: tf.cast(row % 3 > 0, tf.int32), target_dist=target, initial_dist=initial
    )
    return data.map(lambda _, row: row)


def _interleaved(context: Any, rows: int) -> Data:
    """Read shuffled files: each has 100 neighbouring rows."""
    files = shard(Data.range(rows // 100), context).shuffle(1000)
    read = files.interleave(lambda file: Data.range(file * 100, file * 100 + 100).shuffle(100), 4)
    return read.shuffle(100)


PIPELINES: dict[str, Pipeline] = {
    "`shard`, `shuffle(1000)`": lambda it, rows: shard(Data.range(rows), it).shuffle(1000),
    "`shard`, `shuffle(1000, seed)`": lambda it, rows: shard(Data.range(rows), it).shuffle(1000, 5),
    "`shuffle(1000)`, `shard`": lambda it, rows: shard(Data.range(rows).shuffle(1000), it),
    "`interleave` of shuffled files": _interleaved,
    "`sample_from_datasets`": _sampled,
    "`sample_from_datasets(seed)`": lambda it, rows: _sampled(it, rows, seed=5),
    "`choose_from_datasets`, random": _chosen,
    "`rejection_resample`": _resampled,
}


def alone(pipeline: Pipeline, rows: int) -> Order:
    """Return the rows of an epoch of a pipeline in one process."""
    with fixed_randomness(SEED):
        return _rows(pipeline(tf.distribute.InputContext(1, 0, 1), rows).batch(BATCH))


def in_splits(pipeline: Pipeline, rows: int, splits: int) -> Order:
    """Return the rows of an epoch in the order of delivery."""

    def dataset_fn(context: Any) -> Data:
        return pipeline(context, rows).batch(context.get_per_replica_batch_size(BATCH))

    draft = types_pb2.Job(name="any", num_splits=splits, partitions=PARTITIONS, seed=SEED)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a shard after a shuffle reads all rows for each split
        job, data = export_job(draft, dataset_fn)
    opener = SplitOpener(lambda _: data)
    parts = [_rows(opener.open(job, SEED, 0, split, 0).elements) for split in range(splits)]
    dealt = assignment.deal(SEED, 0, splits, PARTITIONS)
    return np.concatenate(list(_steps([np.concatenate([parts[i] for i in one]) for one in dealt])))


def _rows(batches: Any) -> Order:
    return np.concatenate([np.asarray(batch) for batch in batches])


def _steps(lists: list[Order]) -> Iterator[Order]:
    taken = dict.fromkeys(range(PARTITIONS), 0)
    while any(taken[p] < len(lists[p]) for p in taken):
        live = [p for p in taken if taken[p] < len(lists[p])]
        turns = assignment.batch_turns(live, BATCH, BATCH // PARTITIONS)
        got: int | None = None
        while True:
            try:
                p, need = next(turns) if got is None else turns.send(got)
            except StopIteration:
                break
            part = lists[p][taken[p] : taken[p] + need]
            got = len(part)
            taken[p] += got
            yield part


def windows(order: Order) -> float:
    """Return the mean number of windows of neighbouring rows that a batch covers."""
    return float(np.mean([len(set(batch // WINDOW)) for batch in _batches(order)]))


def share_deviation(order: Order) -> float:
    """Return the standard deviation over the batches of the share of every third row."""
    return float((_batches(order) % 3 == 0).mean(axis=1).std())


def _batches(order: Order) -> Order:
    return order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)


if __name__ == "__main__":
    main()
