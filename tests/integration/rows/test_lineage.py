"""Batches name their rows, and positions show them, whatever dies, on any number of trainers."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto import types_pb2
from distributed_input.order.step_rows import rows_of_step
from distributed_input.trainer import position_log
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec

SIZES = [90, 17, 0, 64, 120, 33, 1, 75]
FIELDS: dict[str, Any] = {"partitions": 4, "numSplits": len(SIZES), "globalBatchSize": 16}
REMAINDERS = {"Keep": types_pb2.KEEP, "Drop": types_pb2.DROP, "Pad": types_pb2.PAD}
Rows = list[list[int]]


def names(train: Input, batches: Iterable[Any]) -> list[Rows]:
    """Return [epoch, split, index] of the rows of each batch, as the rows and the input name them.

    Rows that fill up a batch have zeros, and no name.
    """
    found = []
    for batch in batches:
        lineage = np.stack(train.lineage()[1:], axis=1)
        is_row = lineage[:, 0] >= 0
        assert lineage.dtype == np.int64
        assert np.asarray(batch["name"])[is_row].tolist() == lineage[is_row].tolist()
        assert (np.asarray(batch["name"])[~is_row] == 0).all()
        assert (lineage[~is_row] == -1).all()
        found.append(lineage[is_row].tolist())
    return found


def read(
    sidecars: Sequence[Sidecar], name: str, position: bytes | None, *steps: int | None
) -> tuple[list[list[Rows]], bytes]:
    """Read as all trainers: `steps[i]` steps of an epoch. Return their rows, and a position."""

    together = Barrier(len(sidecars))

    def one(sidecar: Sidecar) -> tuple[list[Rows], bytes]:
        with readers.connect(sidecar, name, lineage=True) as train:
            if position is not None:
                train.restore(position)
            rows: list[Rows] = []
            for count in steps:
                rows += names(train, islice(train.numpy(), count))
            together.wait(readers.SECONDS)  # one that closes would leave the run
            return rows, train.position()

    found = readers.run_concurrently([lambda sidecar=s: one(sidecar) for s in sidecars])
    return [rows for rows, _ in found], found[-1][1]


@pytest.mark.parametrize("remainder", REMAINDERS)
def test_rows_have_their_names_after_a_kill_and_on_other_trainers(
    own_cluster: Cluster, remainder: str
) -> None:
    first, _ = own_cluster.add_workers(2)
    one = spec("self_named:uneven", {"sizes": SIZES}, buffer="4Mi", remainder=remainder, **FIELDS)
    pair = own_cluster.add_sidecars({"rows": one}, 2)
    begun, position = read(pair, "rows", None, None, 4)
    first.kill()
    rest, position = read(pair, "rows", position, 3)
    for sidecar in pair:
        sidecar.stop()
    four = own_cluster.add_sidecars({"rows": one}, 4)
    last, _ = read(four, "rows", position, None, None)
    everything = [row for part in (*begun, *rest, *last) for batch in part for row in batch]
    expected = [[e, s, r] for e in range(3) for s, size in enumerate(SIZES) for r in range(size)]
    if remainder != "Drop":
        assert sorted(everything) == expected
    assert len({tuple(row) for row in everything}) == len(everything) > sum(SIZES)

    # The same rows follow from the position, which was saved on two trainers.
    saved = position_log.parse(position)
    assert (saved.epoch, saved.step, saved.consumers) == (1, 7, 2)
    lengths = dict(enumerate(SIZES))
    kind = REMAINDERS[remainder]
    for consumer, part in enumerate(rest):
        for step, batch in enumerate(part, 4):
            ranges = rows_of_step(saved, step, lengths, kind, consumer)
            assert [[1, s, f + n] for s, f, rows in ranges for n in range(rows)] == batch
    saved.base_rows[:] = [7 * 4] * 4  # as a position of the four trainers begins
    saved.base_step, saved.consumers = 7, 4
    for consumer, part in enumerate(last):
        for step, batch in enumerate(part, 7):
            if batch and batch[0][0] > 1:
                break
            ranges = rows_of_step(saved, step, lengths, kind, consumer)
            assert [[1, s, f + n] for s, f, rows in ranges for n in range(rows)] == batch


def test_a_batch_has_names_only_on_request(cluster: Cluster) -> None:
    one = spec("self_named:uneven", {"sizes": SIZES, "kib": 1}, **FIELDS)
    (sidecar,) = cluster.add_sidecars({"named": one})
    with readers.connect(sidecar) as train:
        next(train.numpy())
        with pytest.raises(ConfigError, match="lineage=True"):
            train.lineage()
    with readers.connect(sidecar, lineage=True) as train:
        with pytest.raises(PositionError, match="no batch was read"):
            train.lineage()
        batches = train.numpy()
        names(train, islice(batches, 2))
        position = train.position()
        train.restore(position)
        with pytest.raises(PositionError, match="no batch was read"):
            train.lineage()
        # A plain dataset prefetches: the last batch that was read is not that of the loop.
        next(iter(train.dataset()))
        with pytest.raises(PositionError, match="a plain dataset prefetches"):
            train.lineage()
