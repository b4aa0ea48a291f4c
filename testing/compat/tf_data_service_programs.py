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


def before_and_after(address: str) -> list[int]:
    """What stands before `distribute` squares, what stands after it adds one."""
    dataset = tf.data.Dataset.range(5).map(lambda x: x * x)
    dataset = distributed(dataset, address, "parallel_epochs")
    return sorted(read(dataset.map(lambda x: x + 1)))


def threads(row: tf.Tensor) -> tf.Tensor:
    """Those of the process that runs this: paths, the last part of one of which is its id."""
    return tf.io.matching_files(tf.where(row < 0, "", "/proc/self/task/*"))


def with_makers(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Every number with the threads of the process that makes it."""
    return dataset.map(lambda row: (row, threads(row)))


def where_it_runs(address: str) -> Iterator[tuple[Any, Any]]:
    """Of every element the threads before and after `distribute`."""
    dataset = distributed(numbers(4).map(threads), address, "parallel_epochs")
    rows = tf.data.Dataset.zip(numbers(4), dataset)
    return iter(rows.map(lambda row, before: (before, threads(row))).as_numpy_iterator())


def lines(pattern: str) -> tf.data.Dataset:
    """The numbers in text files, which FILE deals out."""
    files = tf.data.Dataset.list_files(pattern, shuffle=False)
    texts = files.interleave(tf.data.TextLineDataset)
    return texts.map(lambda line: tf.strings.to_number(line, tf.int64))


def noted(rows: int, folder: str) -> tf.data.Dataset:
    """Numbers that leave a file behind when they are made."""

    def note(row: tf.Tensor) -> tf.Tensor:
        path = tf.strings.join([folder, tf.strings.as_string(row)], separator="/")
        with tf.control_dependencies([tf.io.write_file(path, "")]):
            return tf.identity(row)

    return numbers(rows).map(note)


def one_file(path: str) -> tf.data.Dataset:
    """A source that no dispatcher can split."""
    return tf.data.experimental.CsvDataset(path, [tf.int64]).map(lambda row: row)


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
