"""Rows that contain their number, so that a test can count them. `id` is unique in an epoch."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import tensorflow as tf

import distributed_input


def _sharded(dataset: tf.data.Dataset, ctx: Any) -> tf.data.Dataset:
    return dataset.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def _with_values(dataset: tf.data.Dataset) -> tf.data.Dataset:
    return dataset.map(lambda row: {"id": row, "square": tf.cast(row * row, tf.int32)})


def numbered(ctx: Any, rows: int = 100, batch: int = 0) -> tf.data.Dataset:
    """Return row r in split r mod n, in batches of `batch` if given."""
    dataset = _with_values(_sharded(tf.data.Dataset.range(rows), ctx))
    return dataset.batch(batch) if batch else dataset


def images(ctx: Any, rows: int = 100) -> tf.data.Dataset:
    """Return rows of 64 KiB."""
    dataset = _sharded(tf.data.Dataset.range(rows), ctx)
    return dataset.map(
        lambda row: {"id": row, "image": tf.fill([256, 256], tf.cast(row % 251, tf.uint8))}
    )


def labeled(ctx: Any, rows: int = 100, features: int = 8) -> tf.data.Dataset:
    """Return pairs: as many features, each the number of the row, and a label of one number."""
    numbers = _sharded(tf.data.Dataset.range(rows), ctx)
    numbers = numbers.map(lambda row: tf.cast(row, tf.float32))
    return numbers.map(lambda row: (tf.fill([features], row), row[None] % 2))


def tokens(ctx: Any, rows: int = 100, length: int = 16) -> tf.data.Dataset:
    """Return rows for a language model: this number of tokens, which are also the labels."""
    numbers = _sharded(tf.data.Dataset.range(rows), ctx)
    numbers = numbers.map(lambda row: (row + tf.range(length, dtype=tf.int64)) % 50)
    return numbers.map(lambda row: {"input_ids": row, "labels": row})


def document(number: int) -> range:
    """Return the tokens of a document of `documents`: 1 to 31 of them, which no other one has."""
    return range(100 * number, 100 * number + 1 + number * number % 31)


def documents(ctx: Any, rows: int = 100, batch: int = 0) -> tf.data.Dataset:
    """Return rows of variable length: document d in split d mod n."""
    numbers = _sharded(tf.data.Dataset.range(rows), ctx)
    dataset = numbers.map(lambda row: {"tokens": 100 * row + tf.range(1 + row * row % 31)})
    return dataset.padded_batch(batch) if batch else dataset


def uneven(ctx: Any, sizes: Sequence[int], batch: int = 0) -> tf.data.Dataset:
    """Return sizes[s] rows in split s: none, fewer than a batch, or many batches."""
    before = sum(sizes[: ctx.input_pipeline_id])
    dataset = tf.data.Dataset.range(before, before + sizes[ctx.input_pipeline_id])
    dataset = _with_values(dataset)
    return dataset.batch(batch) if batch else dataset


def shuffled(ctx: Any, rows: int = 100, global_batch: int = 32) -> tf.data.Dataset:
    """Return rows that are shuffled without a seed and then sharded.

    The result is correct only if all splits shuffle in the same way.
    """
    dataset = _sharded(tf.data.Dataset.range(rows).shuffle(rows), ctx)
    return _with_values(dataset).batch(ctx.get_per_replica_batch_size(global_batch))


def selected(ctx: Any, rows: int = 100, global_batch: int = 32) -> tf.data.Dataset:
    """Return rows that are selected after they were computed, so that splits share a pass."""
    dataset = _sharded(_with_values(tf.data.Dataset.range(rows).shuffle(rows)), ctx)
    return dataset.batch(ctx.get_per_replica_batch_size(global_batch))


def augmented(ctx: Any, rows: int = 100, global_batch: int = 32) -> tf.data.Dataset:
    """Return shuffled rows with random values that are computed in parallel."""

    def augment(row: Any) -> dict[str, Any]:
        noise = tf.random.uniform([3]) + tf.random.normal([3])
        flip = tf.random.stateless_uniform([], seed=[1, tf.cast(row, tf.int32)])
        return {"id": row, "noise": noise, "flip": flip}

    dataset = _sharded(tf.data.Dataset.range(rows).shuffle(rows // 2), ctx)
    dataset = dataset.map(augment, num_parallel_calls=4).shuffle(7)
    return dataset.batch(ctx.get_per_replica_batch_size(global_batch))


def endless(ctx: Any, rows: int = 12) -> tf.data.Dataset:
    """Repeat each split's rows without end."""
    return _with_values(_sharded(tf.data.Dataset.range(rows), ctx).repeat())


def listed(ctx: Any, pattern: str, padding: int = 0) -> tf.data.Dataset:
    """Read TFRecord files of eight-byte numbers, listed in shuffled order and then sharded.

    Each row also has this number of bytes.
    """
    files = _sharded(tf.data.Dataset.list_files(pattern), ctx)
    return files.interleave(tf.data.TFRecordDataset, cycle_length=2).map(
        lambda record: {
            "id": tf.io.decode_raw(record, tf.int64)[0],
            "padding": tf.zeros([padding], tf.uint8),
        }
    )


def bounded(ctx: Any, pattern: str) -> tf.data.Dataset:
    """Read files as `listed` does, and shuffle the rows behind a boundary."""
    files = _sharded(tf.data.Dataset.list_files(pattern, shuffle=False), ctx)
    rows = files.interleave(tf.data.TFRecordDataset, cycle_length=2)
    rows = rows.map(lambda record: {"id": tf.io.decode_raw(record, tf.int64)[0]})
    return rows.apply(distributed_input.boundary()).shuffle(16)


def write_files(folder: Any, sizes: Sequence[int]) -> str:
    """Write files for `listed` with these numbers of rows; return the pattern that matches them."""
    row = 0
    for number, size in enumerate(sizes):
        with tf.io.TFRecordWriter(f"{folder}/part-{number:03d}.tfrecord") as writer:
            for _ in range(size):
                writer.write(row.to_bytes(8, "little"))
                row += 1
    return f"{folder}/part-*.tfrecord"


def mixed(ctx: Any, sizes: Mapping[str, int], delay: float = 0) -> tf.data.Dataset:
    """Return shuffled rows of one of the sources: those of source s, by name, start at s * 10,000.

    With a `delay`, each row takes so many seconds.
    """
    first = 10_000 * sorted(sizes).index(ctx.source)
    dataset = _sharded(tf.data.Dataset.range(first, first + sizes[ctx.source]), ctx).shuffle(50)
    if delay:
        dataset = dataset.map(lambda row: tf.numpy_function(_slow(delay), [row], tf.int64))
        dataset = dataset.map(lambda row: tf.ensure_shape(row, []))
    return _with_values(dataset)


def _slow(seconds: float) -> Callable[[Any], Any]:
    def wait(row: Any) -> Any:
        time.sleep(seconds)
        return row

    return wait
