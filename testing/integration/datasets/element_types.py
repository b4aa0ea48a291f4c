"""Elements of every type that tf.data supports, from every kind of source."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import ml_dtypes
import numpy as np
import tensorflow as tf

import distributed_input

ROWS = 22
WORDS = ["ant", "bee", "cat", "dog", "eel"]


class Pair(NamedTuple):
    """A structure with names."""

    left: Any
    right: Any


def _numbers(ctx: Any) -> tf.data.Dataset:
    numbers = tf.data.Dataset.range(ROWS)
    return numbers.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def _dense(row: Any) -> dict[str, Any]:
    text = tf.strings.as_string(row)
    return {
        "id": row,
        "image": tf.cast(tf.fill([2, 3], row), tf.float32),
        "half": tf.cast([row, row + 1], tf.bfloat16),
        "byte": tf.cast(row, tf.uint8),
        "flag": row % 2 == 0,
        "wave": tf.complex(tf.cast(row, tf.float32), 1.0),
        "text": text,
        "texts": tf.stack([text, "", text + "!"]),
        "nothing": tf.zeros([0, 2]),
        "nested": ({"x": row * 2}, (row * 3, {"y": text})),
        "pair": Pair(row, -row),
    }


def dense(ctx: Any) -> tf.data.Dataset:
    """Return single rows of fixed shapes; the workers batch them."""
    return _numbers(ctx).map(_dense)


def four_bits(ctx: Any) -> tf.data.Dataset:
    """Return single rows of a type that tf.data cannot batch; the workers batch them."""
    numbers = np.arange(ROWS * 3).reshape(ROWS, 3) % 7
    parts = tf.data.Dataset.from_tensor_slices(numbers.astype(ml_dtypes.float4_e2m1fn))
    parts = parts.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return tf.data.Dataset.zip({"id": _numbers(ctx), "weights": parts})


def _varied(row: Any) -> dict[str, Any]:
    count = row % 4
    sparse = tf.sparse.SparseTensor([[0, count], [2, 1]], tf.stack([row, row + 1]), [3, 5])
    return {
        "id": row,
        "ragged": tf.range(count) + row,
        "words": tf.strings.as_string(tf.range(count)),
        "boxes": tf.cast(tf.fill([count, 2], row), tf.float32),
        "deep": tf.RaggedTensor.from_row_lengths(tf.range(count + 2), [count, 0, 2]),
        "sparse": sparse,
    }


def varied(ctx: Any) -> tf.data.Dataset:
    """Return batches of ragged and sparse components."""
    return _numbers(ctx).map(_varied).ragged_batch(3)


def single_varied(ctx: Any) -> tf.data.Dataset:
    """Return single rows with the components of `varied` that can be batched without padding."""
    kept = ("id", "deep", "sparse")
    return _numbers(ctx).map(_varied).map(lambda row: {key: row[key] for key in kept})


def sized(ctx: Any) -> tf.data.Dataset:
    """Return rows of three numbers, whose size TensorFlow does not know."""
    return _numbers(ctx).map(lambda row: tf.repeat(row, tf.cast(row * 0 + 3, tf.int32)))


def parsed(ctx: Any) -> tf.data.Dataset:
    """Return tensors of unknown rank, from 0 to 3, to pass whole."""

    def parse(row: Any) -> dict[str, Any]:
        shape = tf.ones([row % 4], tf.int32)
        numbers = tf.io.serialize_tensor(tf.reshape(row, shape))
        words = tf.io.serialize_tensor(tf.reshape(tf.strings.as_string(row), shape))
        return {
            "id": row,
            "numbers": tf.io.parse_tensor(numbers, tf.int64),
            "words": tf.io.parse_tensor(words, tf.string),
        }

    return _numbers(ctx).map(parse)


def parsed_rows(ctx: Any) -> tf.data.Dataset:
    """Return single rows of one shape whose rank is unknown; the workers batch them."""

    def parse(row: Any) -> dict[str, Any]:
        numbers = tf.io.serialize_tensor(tf.fill([2, 3], row))
        return {"id": row, "numbers": tf.io.parse_tensor(numbers, tf.int64)}

    return _numbers(ctx).map(parse)


def padded(ctx: Any) -> tf.data.Dataset:
    """Return the user's own batches, as wide as their longest row, to pass whole."""
    rows = _numbers(ctx).map(lambda row: {"id": row, "tokens": tf.fill([row % 5], row)})
    return rows.padded_batch(4)


def scalars(ctx: Any) -> tf.data.Dataset:
    """Return elements without structure, to pass whole."""
    return _numbers(ctx)


def generated(ctx: Any) -> tf.data.Dataset:
    """Return a Python generator inside tf.data, which a trainer cannot send."""

    def generate() -> Iterator[dict[str, Any]]:
        for row in range(ctx.input_pipeline_id, ROWS, ctx.num_input_pipelines):
            yield {"id": row, "word": WORDS[row % 5]}

    signature = {"id": tf.TensorSpec([], tf.int64), "word": tf.TensorSpec([], tf.string)}
    return tf.data.Dataset.from_generator(generate, output_signature=signature)


def generated_without_end(ctx: Any) -> tf.data.Dataset:
    """Return an endless Python generator of different arrays."""

    def generate() -> Iterator[Any]:
        numbers = np.random.default_rng([ctx.seed, ctx.epoch, ctx.input_pipeline_id])
        while True:
            yield numbers.random(4)

    return tf.data.Dataset.from_generator(generate, output_signature=tf.TensorSpec([4], tf.float32))


def called(ctx: Any) -> tf.data.Dataset:
    """Return a dataset that calls a Python function inside tf.data."""

    def word(row: Any) -> bytes:
        return WORDS[int(row) % 5].encode()

    return _numbers(ctx).map(
        lambda row: {"id": row, "word": tf.ensure_shape(tf.py_function(word, [row], tf.string), [])}
    )


def iterated(ctx: Any) -> Iterator[dict[str, Any]]:
    """Yield numpy arrays without tf.data."""
    for row in range(ctx.input_pipeline_id, ROWS, ctx.num_input_pipelines):
        yield {"id": np.int64(row), "word": WORDS[row % 5], "image": np.full((2, 2), row, np.uint8)}


def iterated_varied(ctx: Any) -> Iterator[dict[str, Any]]:
    """Yield ragged and sparse values from Python, to pass whole."""
    for row in range(ctx.input_pipeline_id, ROWS, ctx.num_input_pipelines):
        count = row % 3
        yield {
            "id": np.int64(row),
            "ragged": distributed_input.Ragged(
                np.arange(count), (np.array([0, count, count], np.int64),)
            ),
            "sparse": distributed_input.Sparse(
                np.array([[count]], np.int64), np.array([1.5], np.float32), np.array([4], np.int64)
            ),
        }


def with_tables(folder: str) -> Any:
    """Return a dataset_fn with a lookup table and a vocabulary file of this machine."""
    with open(f"{folder}/words.txt", "w", encoding="utf-8") as file:
        file.writelines(f"{word}\n" for word in WORDS)
    keys = tf.constant(WORDS)
    legs = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(keys, tf.constant([6, 6, 4, 4, 0])), -1
    )
    vocabulary = tf.lookup.StaticVocabularyTable(
        tf.lookup.TextFileInitializer(
            f"{folder}/words.txt", tf.string, tf.lookup.TextFileIndex.WHOLE_LINE,
            tf.int64, tf.lookup.TextFileIndex.LINE_NUMBER,
        ),
        num_oov_buckets=1,
    )  # fmt: skip
    weight = tf.Variable(0.5)

    def dataset_fn(ctx: Any) -> tf.data.Dataset:
        def look_up(row: Any) -> dict[str, Any]:
            word = tf.gather([*WORDS, "gnu"], row % 6)
            return {
                "id": row,
                "legs": legs.lookup(word),
                "number": vocabulary.lookup(word),
                "weight": weight * tf.cast(row, tf.float32),
            }

        return _numbers(ctx).map(look_up).batch(ctx.get_per_replica_batch_size(8))

    return dataset_fn
