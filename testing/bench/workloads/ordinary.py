"""Ordinary pipelines, as users write them: files or arrays, a parallel map, a batch and a prefetch.

All are endless. The files are small and stay in the page cache.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from testing.bench.case import REPO, Case

if TYPE_CHECKING:
    import tensorflow as tf

_FOLDER = Path(tempfile.gettempdir()) / "di-bench-ordinary-1"
"""Another number for other files."""
_IMAGES, _LINES, _RECORDS, _FILES = 512, 200_000, 100_000, 64
_WORDS = 10_000
_ROWS = 1_000_000_000
_AUTO = -1  # tf.data.AUTOTUNE


def images(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of (float32 [b, 224, 224, 3], int64 [b]) from JPEG files."""
    import tensorflow as tf

    def load(path: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.io.decode_jpeg(tf.io.read_file(path), channels=3)
        return tf.image.resize(image, [224, 224]) / 255.0, label

    paths = [str(_FOLDER / "images" / f"{number}.jpg") for number in range(_IMAGES)]
    labels = np.arange(_IMAGES) % 10
    rows = _shard(tf.data.Dataset.from_tensor_slices((paths, labels)), ctx)
    rows = rows.repeat().map(load, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(32)).prefetch(_AUTO)


def text(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of int64 [b, 64]: the words of lines as indices of a vocabulary."""
    import tensorflow as tf

    words = tf.constant([_word(number) for number in range(_WORDS)])
    numbers = tf.range(_WORDS, dtype=tf.int64)
    known = tf.lookup.KeyValueTensorInitializer(words, numbers)
    vocabulary = tf.lookup.StaticVocabularyTable(known, num_oov_buckets=1)

    def encode(lines: tf.Tensor) -> tf.Tensor:
        return vocabulary.lookup(tf.strings.split(lines)).to_tensor(shape=[None, 64])

    lines = _shard(tf.data.TextLineDataset(str(_FOLDER / "lines.txt")), ctx)
    lines = lines.repeat().batch(ctx.get_per_replica_batch_size(256))
    return lines.map(encode, num_parallel_calls=_AUTO).prefetch(_AUTO)


def records(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of {"id": int64 [b], "tokens": int64 [b, 128]} from a TFRecord file."""
    import tensorflow as tf

    rows = _shard(tf.data.TFRecordDataset(str(_FOLDER / "all.tfrecord")), ctx)
    rows = rows.repeat().shuffle(1000).map(_parse, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(256)).prefetch(_AUTO)


def table(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of (float32 [b, 32], int64 [b]) from arrays."""
    import tensorflow as tf

    features = np.random.default_rng(0).random((100_000, 32), np.float32)
    labels = np.arange(100_000) % 2
    rows = _shard(tf.data.Dataset.from_tensor_slices((features, labels)), ctx)
    return rows.repeat().batch(ctx.get_per_replica_batch_size(1024)).prefetch(_AUTO)


def map_batches(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of {"id": int64 [b], "tokens": int32 [b, 128]}, with a map of batches."""
    import tensorflow as tf

    def add(ids: tf.Tensor) -> dict[str, tf.Tensor]:
        return {"id": ids, "tokens": tf.tile(tf.cast(ids[:, None], tf.int32), [1, 128])}

    batches = _shard(tf.data.Dataset.range(_ROWS), ctx)
    batches = batches.batch(ctx.get_per_replica_batch_size(1024))
    return batches.map(add, num_parallel_calls=_AUTO).prefetch(_AUTO)


def map_rows(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return the rows of `map_batches`, with a map of rows."""
    import tensorflow as tf

    rows = _shard(tf.data.Dataset.range(_ROWS), ctx)
    rows = rows.map(_tokens, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(1024)).prefetch(_AUTO)


def shuffled(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return the rows of `map_batches` in random order, from a large buffer."""
    import tensorflow as tf

    rows = _shard(tf.data.Dataset.range(1_000_000), ctx).repeat()
    rows = rows.shuffle(100_000).map(_tokens, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(1024)).prefetch(_AUTO)


def interleaved(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return the rows of `records` from many files, some read at once."""
    import tensorflow as tf

    paths = [str(_FOLDER / f"{number}.tfrecord") for number in range(_FILES)]
    rows = _shard(tf.data.Dataset.from_tensor_slices(paths), ctx).repeat()
    rows = rows.interleave(
        tf.data.TFRecordDataset, cycle_length=4, block_length=16, num_parallel_calls=_AUTO
    )
    rows = rows.map(_parse, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(256)).prefetch(_AUTO)


def ragged(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of {"id": int64 [b], "tokens": int64 [b, (64 to 192)]}, ragged."""
    import tensorflow as tf

    batches = _shard(tf.data.Dataset.range(_ROWS), ctx)
    rows = batches.map(_some_tokens, num_parallel_calls=_AUTO)
    return rows.ragged_batch(ctx.get_per_replica_batch_size(256)).prefetch(_AUTO)


def padded(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return the rows of `ragged`, padded to [b, 192]."""
    import tensorflow as tf

    rows = _shard(tf.data.Dataset.range(_ROWS), ctx)
    rows = rows.map(_some_tokens, num_parallel_calls=_AUTO)
    size = ctx.get_per_replica_batch_size(256)
    return rows.padded_batch(size, {"id": [], "tokens": [192]}).prefetch(_AUTO)


def augmented(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return batches of (float32 [b, 32, 32, 3], int64 [b]): arrays, changed at random."""
    import tensorflow as tf

    def change(image: tf.Tensor, label: tf.Tensor) -> tuple[tf.Tensor, tf.Tensor]:
        image = tf.image.resize_with_crop_or_pad(tf.cast(image, tf.float32) / 255.0, 36, 36)
        image = tf.image.random_flip_left_right(tf.image.random_crop(image, [32, 32, 3]))
        return tf.image.random_brightness(image, 0.2), label

    pixels = np.random.default_rng(0).integers(256, size=(5000, 32, 32, 3), dtype=np.uint8)
    labels = np.arange(5000) % 10
    rows = _shard(tf.data.Dataset.from_tensor_slices((pixels, labels)), ctx)
    rows = rows.shuffle(5000).repeat().map(change, num_parallel_calls=_AUTO)
    return rows.batch(ctx.get_per_replica_batch_size(128)).prefetch(_AUTO)


PIPELINES: dict[str, Callable[..., Any]] = {
    "images: read, decode, resize": images,
    "text: lines, vocabulary": text,
    "records: TFRecord, shuffle, parse": records,
    "table: arrays": table,
    "batches: range, batch, map": map_batches,
    "rows: range, map, batch": map_rows,
    "large shuffle": shuffled,
    "interleave of files": interleaved,
    "ragged tokens": ragged,
    "padded tokens": padded,
    "random augmentation": augmented,
}


def cases(quick: bool) -> Iterator[Case]:
    """Yield one case for each pipeline. Write their files first, if they do not exist."""
    if not _FOLDER.exists():
        subprocess.run([sys.executable, "-m", __name__], cwd=REPO, check=True)
    for name, function in PIPELINES.items():
        if not quick or function in (map_batches, records):
            yield Case("ordinary", name, f"{__name__}:{function.__name__}", {})


def _shard(rows: tf.data.Dataset, ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    return rows.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)


def _tokens(row: tf.Tensor) -> dict[str, tf.Tensor]:
    import tensorflow as tf

    return {"id": row, "tokens": tf.fill([128], tf.cast(row, tf.int32))}


def _some_tokens(row: tf.Tensor) -> dict[str, tf.Tensor]:
    import tensorflow as tf

    return {"id": row, "tokens": tf.range(row, row + 64 + row % 129)}


def _parse(record: tf.Tensor) -> dict[str, tf.Tensor]:
    import tensorflow as tf

    integer = tf.io.FixedLenFeature([], tf.int64)
    tokens = tf.io.FixedLenFeature([128], tf.int64)
    parsed: dict[str, tf.Tensor] = tf.io.parse_single_example(
        record, {"id": integer, "tokens": tokens}
    )
    return parsed


def _word(number: int) -> str:
    return f"word{number}"


def _write_files() -> None:
    """Write all files to a new folder, and rename it."""
    import tensorflow as tf

    with tempfile.TemporaryDirectory(dir=_FOLDER.parent) as temporary:
        folder = Path(temporary) / "files"
        (folder / "images").mkdir(parents=True)
        random = np.random.default_rng(0)
        for number in range(_IMAGES):
            coarse = random.random((1, 16, 16, 3), np.float32) * 255  # like a photo: it compresses
            image = tf.cast(tf.image.resize(coarse, [256, 256], "bicubic")[0], tf.uint8)
            path = folder / "images" / f"{number}.jpg"
            path.write_bytes(tf.io.encode_jpeg(image).numpy())
        with (folder / "lines.txt").open("w") as lines:
            for _ in range(_LINES):
                some = random.integers(_WORDS + 100, size=random.integers(16, 64))
                lines.write(" ".join(_word(one) for one in some) + "\n")
        _write_records(folder / "all.tfrecord", range(_RECORDS))
        for number in range(_FILES):
            rows = range(number * 1000, number * 1000 + 1000)
            _write_records(folder / f"{number}.tfrecord", rows)
        folder.rename(_FOLDER)


def _write_records(path: Path, rows: range) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for row in rows:
            values = {"id": [row], "tokens": [(row * 31 + one) % 50_000 for one in range(128)]}
            features = {
                name: tf.train.Feature(int64_list=tf.train.Int64List(value=some))
                for name, some in values.items()
            }
            example = tf.train.Example(features=tf.train.Features(feature=features))
            writer.write(example.SerializeToString())


if __name__ == "__main__":
    _write_files()
