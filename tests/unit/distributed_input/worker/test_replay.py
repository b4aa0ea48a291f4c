"""Rows computed again from a position, compared with its digests."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Barrier
from typing import Any

import numpy as np
import pytest

from distributed_input.api.config import (
    BadRecordsConfig,
    BatchingConfig,
    DatasetConfig,
    InputConfig,
)
from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto import trainer_pb2
from distributed_input.order import identity, splits
from distributed_input.order.step_rows import RowRange
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.decode import decode_leaves
from distributed_input.rows.prefix import Prefix
from distributed_input.worker import replay
from distributed_input.worker.replay import EpochRows

ROWS, SPLITS, PARTITIONS, BATCH, SEED = 60, 4, 2, 6, 5


def dataset(context: Any, kind: str = "keys") -> Any:
    """Return rows with a number that is random, and a key."""
    import tensorflow as tf

    numbers = tf.data.Dataset.range(ROWS)
    numbers = numbers.shard(context.num_input_pipelines, context.input_pipeline_id)
    if kind == "endless":
        numbers = numbers.repeat()
    if kind == "bad":
        return numbers.map(lambda at: {"number": tf.debugging.check_numerics(1 / (at - 8), "")})
    return numbers.shuffle(9).map(
        lambda at: {
            "key": tf.strings.as_string(at),
            "noise": tf.random.uniform([2]),
            "number": at,
            "is_even": at % 2 == 0,
        }
    )


def config(kind: str = "keys", **fields: Any) -> InputConfig:
    source = DatasetConfig(f"{__name__}:dataset", {"kind": kind})
    return InputConfig(dataset=source, batching=BatchingConfig(BATCH), **fields)


def saved(**fields: Any) -> trainer_pb2.Position:
    """Return a position in the second epoch, with values that the resource does not have."""
    position = trainer_pb2.Position(
        job="train", epoch=1, step=2, consumers=1, partitions=PARTITIONS, num_splits=SPLITS,
        global_batch_size=BATCH, seed=SEED, format=identity.FORMAT, order_version=1,
    )  # fmt: skip
    for name, value in fields.items():
        if name == "prefixes":
            position.prefixes.extend(value)
        else:
            setattr(position, name, value)
    return position


def numbers_of(epoch: EpochRows, ranges: list[RowRange]) -> list[int]:
    rows = sum(one.rows for one in ranges)
    leaves = dict(
        zip(
            [leaf.path for leaf in epoch.row.leaves],
            decode_leaves(epoch.row, rows, epoch.read(ranges)),
            strict=True,
        )
    )
    found: list[int] = leaves["number"].tolist()
    return found


def test_all_steps_have_each_row_once() -> None:
    epoch = EpochRows(saved(), config())
    steps = [numbers_of(epoch, epoch.ranges(step)) for step in range(ROWS // BATCH)]
    assert sorted(number for step in steps for number in step) == list(range(ROWS))
    assert epoch.ranges(ROWS // BATCH) == []
    assert numbers_of(epoch, []) == []


def test_another_epoch_and_another_seed_have_the_rows_of_a_split_in_another_order() -> None:
    split = [RowRange(1, 0, ROWS // SPLITS)]
    positions = saved(), saved(epoch=0), saved(seed=SEED + 1)
    orders = [numbers_of(EpochRows(one, config()), split) for one in positions]
    assert len(set(map(tuple, orders))) == 3
    assert len(set(map(tuple, map(sorted, orders)))) == 1


def test_only_the_splits_of_a_step_run(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = EpochRows(saved(), config())
    run: list[int] = []
    blocks = epoch._blocks

    def recorded(split: int, end: int | None = None) -> Iterator[RowBlock]:
        run.append(split)
        return blocks(split, end)

    monkeypatch.setattr(epoch, "_blocks", recorded)
    epoch.read(epoch.ranges(0))
    first = [dealt[0] for dealt in splits.deal(SEED, 1, SPLITS, PARTITIONS)]
    assert set(run) == set(first)


def digest(epoch: EpochRows, split: int, rows: int) -> int:
    """Return the digest of the first rows of a split, as it is now."""
    at = Prefix()
    for block in epoch._blocks(split):
        if block.first_row < rows:
            at = block.prefix_at(min(rows, block.end_row))
    return at.digest


@pytest.mark.parametrize(("rows", "wrong"), [(7, 0), (7, 1), (40, 0)])
def test_rows_are_compared_with_the_digests_of_the_position(rows: int, wrong: int) -> None:
    split = splits.deal(SEED, 1, SPLITS, PARTITIONS)[0][0]
    known = digest(EpochRows(saved(), config()), split, rows) ^ wrong
    prefix = trainer_pb2.Prefix(partition=0, split=split, rows=rows, digest=known)
    epoch = EpochRows(saved(prefixes=[prefix]), config())
    wanted = RowRange(split, 2, 3)
    if rows > ROWS // SPLITS or wrong:
        with pytest.raises(PositionError, match=f"split {split} makes other rows now"):
            epoch.read([wanted])
        return
    assert numbers_of(epoch, [wanted]) == numbers_of(EpochRows(saved(), config()), [wanted])
    assert epoch.is_verified(wanted)
    assert epoch.is_verified(RowRange(split, 5, 2))
    assert not epoch.is_verified(RowRange(split, 5, 3))
    assert not epoch.is_verified(RowRange(split + 1, 0, 1))


@pytest.mark.parametrize(
    ("component", "value", "count"),
    [("key", "17", 1), ("number", "59", 1), ("is_even", "TRUE", 30)],
)
def test_the_steps_of_a_value_are_found(component: str, value: str, count: int) -> None:
    epoch = EpochRows(saved(), config())
    found = epoch.find(component, value)
    assert len(found) == count
    assert found == sorted(found)
    for step, split, row in found:
        assert step is not None
        names = [
            (one.split, one.first_row + at) for one in epoch.ranges(step) for at in range(one.rows)
        ]
        assert (split, row) in names
        number = numbers_of(epoch, [RowRange(split, row, 1)])[0]
        assert number % 2 == 0 if component == "is_even" else number == int(value)
    assert epoch.find("key", "60") == []


def test_a_value_is_searched_in_several_splits_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    epoch = EpochRows(saved(), config())
    expected = epoch.find("key", "17")
    blocks, together = epoch._blocks, Barrier(SPLITS)

    def met(split: int, end: int | None = None) -> Iterator[RowBlock]:
        together.wait(30)  # it raises if the splits run one after the other
        return blocks(split, end)

    monkeypatch.setattr(replay, "usable_cpus", lambda: SPLITS)
    monkeypatch.setattr(epoch, "_blocks", met)
    assert epoch.find("key", "17") == expected


def test_a_search_in_other_rows_than_those_delivered_is_an_error() -> None:
    prefix = trainer_pb2.Prefix(partition=0, split=3, rows=7, digest=1)
    with pytest.raises(PositionError, match="split 3 makes other rows now"):
        EpochRows(saved(prefixes=[prefix]), config()).find("key", "60")


@pytest.mark.parametrize(
    ("component", "value", "message"),
    [
        ("noise", "1", "component 'noise' has several values in a row"),
        ("name", "1", "there is no component 'name', but 'is_even', 'key', 'noise', 'number'"),
        ("number", "x", "'x' is no value of type int64"),
        ("is_even", "1", "'1' is no value of type bool"),
    ],
)
def test_what_cannot_be_found_is_an_error(component: str, value: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        EpochRows(saved(), config()).find(component, value)


def test_an_endless_dataset_has_steps_and_no_end() -> None:
    epoch = EpochRows(saved(num_splits=PARTITIONS), config("endless"))
    assert len(numbers_of(epoch, epoch.ranges(50))) == BATCH
    with pytest.raises(PositionError, match="never ends"):
        epoch.find("number", "1")


def test_records_that_were_left_out_are_left_out_again() -> None:
    epoch = EpochRows(saved(order_version=0), config("bad", bad_records=BadRecordsConfig("skip")))
    split = 8 % SPLITS
    expected = [1 / (at - 8) for at in range(split, ROWS, SPLITS) if at != 8]
    (leaf,) = epoch.row.leaves
    assert leaf.dtype == "float64"
    buffers = epoch.read([RowRange(split, 1, 13)])
    (found,) = decode_leaves(epoch.row, 13, buffers)
    assert np.array_equal(found, expected[1:])


def test_a_position_of_another_dataset_is_refused() -> None:
    with pytest.raises(PositionError, match="saved with the dataset"):
        EpochRows(saved(dataset="other:dataset {}"), config())
    with pytest.raises(ConfigError, match="Only the trainer has the dataset"):
        EpochRows(saved(), InputConfig())
