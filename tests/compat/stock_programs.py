"""What users of tf.data service write: TensorFlow alone. Nothing of ours is imported here."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

service = tf.data.experimental.service

POLICIES = service.ShardingPolicy


def numbers(rows: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(rows)


def read(dataset: tf.data.Dataset) -> list[int]:
    """All of a finite dataset's numbers."""
    return [int(value) for value in dataset.as_numpy_iterator()]


def distributed(dataset: tf.data.Dataset, address: str, mode: Any, **more: Any) -> tf.data.Dataset:
    return dataset.apply(service.distribute(processing_mode=mode, service=address, **more))


def registered(dataset: tf.data.Dataset, address: str, mode: Any) -> tf.data.Dataset:
    """Registered here, read by its id, as another process would."""
    identity = service.register_dataset(address, dataset)
    return service.from_dataset_id(
        processing_mode=mode,
        service=address,
        dataset_id=identity,
        element_spec=dataset.element_spec,
    )


def lines(pattern: str) -> tf.data.Dataset:
    """The numbers in text files, which FILE deals out."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    texts = files.interleave(tf.data.TextLineDataset)
    return texts.map(lambda line: tf.strings.to_number(line, tf.int64))


def hinted(rows: int) -> tf.data.Dataset:
    hint = tf.data.experimental.SHARD_HINT
    return tf.data.Dataset.range(rows).shard(hint, hint)


def coordinated(address: str, consumer: int, consumers: int, rows: int) -> Iterator[Any]:
    """One of several consumers in step: batches of a round are of one bucket, so of one length."""
    dataset = tf.data.Dataset.range(rows).map(lambda n: tf.fill([1 + n % 3], n)).repeat()
    dataset = dataset.bucket_by_sequence_length(
        tf.size, bucket_boundaries=[2, 3], bucket_batch_sizes=[4, 4, 4]
    )
    # A round's batches are consecutive elements: as many of one bucket as there are consumers.
    dataset = dataset.group_by_window(
        key_func=lambda batch: tf.cast(tf.shape(batch)[1], tf.int64),
        reduce_func=lambda _, batches: batches.batch(consumers).unbatch(),
        window_size=consumers,
    )
    dataset = distributed(
        dataset,
        address,
        POLICIES.OFF,
        job_name="coordinated",
        consumer_index=consumer,
        num_consumers=consumers,
    )
    return iter(dataset.as_numpy_iterator())


def cached(address: str, trainer: str, take: int) -> list[int]:
    """A trainer of several that read one endless job through its workers' caches."""
    cache = service.CrossTrainerCache(trainer_id=trainer)
    dataset = distributed(
        tf.data.Dataset.range(10_000_000).repeat(),
        address,
        POLICIES.OFF,
        job_name="cached",
        cross_trainer_cache=cache,
    )
    return read(dataset.take(take))
