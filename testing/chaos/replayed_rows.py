"""Entry points whose rows are random, so that only an exact replay makes them again."""

from __future__ import annotations

from typing import Any

import tensorflow as tf

BAD_EVERY = 50
"""One of so many records of `records` fails, if `bad`."""


def records(ctx: Any, rows: int, bad: bool = False) -> tf.data.Dataset:
    """Return shuffled rows with noise and a text; those of a source have its name."""

    def parse(row: tf.Tensor) -> dict[str, Any]:
        text = tf.strings.as_string(row)
        if bad:
            text = tf.where(row % BAD_EVERY == 7, "corrupt", text)
        number = tf.strings.to_number(text, tf.int64)
        noise = tf.random.uniform([500]) + tf.random.normal([500])
        return {"id": number, "noise": noise, "text": tf.strings.join([ctx.source, "-", text])}

    numbers = tf.data.Dataset.range(rows).shuffle(rows)
    numbers = numbers.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.map(parse, num_parallel_calls=2).shuffle(5)


def documents(ctx: Any, rows: int) -> tf.data.Dataset:
    """Return shuffled rows of 1 to 31 random tokens."""

    def document(row: tf.Tensor) -> dict[str, Any]:
        return {"tokens": tf.random.uniform([1 + row * row % 31], maxval=1 << 30, dtype=tf.int64)}

    numbers = tf.data.Dataset.range(rows).shuffle(rows)
    numbers = numbers.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    return numbers.map(document)
