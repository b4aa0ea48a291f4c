"""Programs that users of tf.data service write. They import only TensorFlow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import tensorflow as tf

service = tf.data.experimental.service

POLICIES = service.ShardingPolicy


def numbers(rows: int) -> tf.data.Dataset:
    return tf.data.Dataset.range(rows)


def read(dataset: tf.data.Dataset) -> list[int]:
    """Return all numbers of a finite dataset."""
    return [int(value) for value in dataset.as_numpy_iterator()]


def distributed(dataset: tf.data.Dataset, address: str, mode: Any, **more: Any) -> tf.data.Dataset:
    return dataset.apply(service.distribute(processing_mode=mode, service=address, **more))


def registered(dataset: tf.data.Dataset, address: str, mode: Any) -> tf.data.Dataset:
    """Register the dataset and read it by its id, as another process does."""
    identity = service.register_dataset(address, dataset)
    return service.from_dataset_id(
        processing_mode=mode,
        service=address,
        dataset_id=identity,
        element_spec=dataset.element_spec,
    )


def before_and_after(address: str) -> list[int]:
    """Square the elements before `distribute` and add one after it."""
    dataset = tf.data.Dataset.range(5).map(lambda x: x * x)
    dataset = distributed(dataset, address, "parallel_epochs")
    return sorted(read(dataset.map(lambda x: x + 1)))


def threads(row: tf.Tensor) -> tf.Tensor:
    """Return the threads of this process as paths; the last part of one is its id."""
    return tf.io.matching_files(tf.where(row < 0, "", "/proc/self/task/*"))


def with_threads(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Return every number with the threads of the process that computes it."""
    return dataset.map(lambda row: (row, threads(row)))


def threads_before_and_after(address: str) -> Iterator[tuple[Any, Any]]:
    """Yield the threads before and after `distribute` for every element."""
    dataset = distributed(numbers(4).map(threads), address, "parallel_epochs")
    rows = tf.data.Dataset.zip(numbers(4), dataset)
    return iter(rows.map(lambda row, before: (before, threads(row))).as_numpy_iterator())


def lines(pattern: str) -> tf.data.Dataset:
    """Return the numbers in text files, which FILE shards."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    texts = files.interleave(tf.data.TextLineDataset)
    return texts.map(lambda line: tf.strings.to_number(line, tf.int64))


def with_marker_files(rows: int, folder: str) -> tf.data.Dataset:
    """Return numbers that each write a file when they are computed."""

    def note(row: tf.Tensor) -> tf.Tensor:
        path = tf.strings.join([folder, tf.strings.as_string(row)], separator="/")
        with tf.control_dependencies([tf.io.write_file(path, "")]):
            return tf.identity(row)

    return numbers(rows).map(note)


def one_file(path: str) -> tf.data.Dataset:
    """Return a source that no dispatcher can split."""
    return tf.data.experimental.CsvDataset(path, [tf.int64]).map(lambda row: row)


def hinted(rows: int) -> tf.data.Dataset:
    hint = tf.data.experimental.SHARD_HINT
    return tf.data.Dataset.range(rows).shard(hint, hint)


def coordinated(address: str, consumer: int, consumers: int, rows: int) -> Iterator[Any]:
    """Return the batches of one coordinated consumer.

    In a round, all have one bucket and so one length.
    """
    dataset = tf.data.Dataset.range(rows).map(lambda n: tf.fill([1 + n % 3], n)).repeat()
    dataset = dataset.bucket_by_sequence_length(
        tf.size, bucket_boundaries=[2, 3], bucket_batch_sizes=[4, 4, 4]
    )
    # The batches of a round are consecutive elements, one per consumer, from one bucket.
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
    """Read as one of several trainers that share an endless job through the workers' caches."""
    cache = service.CrossTrainerCache(trainer_id=trainer)
    dataset = distributed(
        tf.data.Dataset.range(10_000_000).repeat(),
        address,
        POLICIES.OFF,
        job_name="cached",
        cross_trainer_cache=cache,
    )
    return read(dataset.take(take))
