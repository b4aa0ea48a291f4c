"""The dataset: 1,797 handwritten digits as TFRecord shards, and the function that reads them.

The digits are those that scikit-learn bundles (8x8 pixels, ten classes). Every row has an
id, 0 to 1,796; every fifth is kept for testing and never given to training.

    python examples/digits/digits.py FOLDER      write the shards
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from pathlib import Path

import tensorflow as tf

ROWS = 1797
TEST_EVERY = 5
BATCH = 64  # rows of a global batch

FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "image": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def dataset_fn(
    ctx: tf.distribute.InputContext, folder: str = "data", part: str = "train"
) -> tf.data.Dataset:
    """One input pipeline's share of the digits, as `distribute_datasets_from_function` takes it.

    Args:
        ctx: which of how many pipelines this is.
        folder: of the shards, relative to this file; written first where it is missing.
        part: "train", or "test" for every fifth row.

    Returns:
        Batches of {"id": int64 [b], "image": float32 [b, 8, 8, 1] in 0..1, "label": int64 [b]}.
    """
    shards = write_shards(Path(__file__).parent / folder)
    files = tf.data.Dataset.list_files(str(shards / "*.tfrecord"), shuffle=False)
    files = files.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    rows = files.interleave(tf.data.TFRecordDataset, cycle_length=4)
    rows = rows.shuffle(500)
    rows = rows.map(_parse, num_parallel_calls=tf.data.AUTOTUNE)
    rows = rows.filter(lambda row: (row["id"] % TEST_EVERY == 0) == (part == "test"))
    return rows.batch(ctx.get_per_replica_batch_size(BATCH)).prefetch(tf.data.AUTOTUNE)


def ids(part: str = "train") -> set[int]:
    """The ids that a part has: what an epoch of it must deliver, each exactly once."""
    return {i for i in range(ROWS) if (i % TEST_EVERY == 0) == (part == "test")}


def write_shards(folder: Path, shards: int = 12) -> Path:
    """Write the digits as TFRecord files, unless `folder` is there already.

    Any number of processes may call this at once: each writes a folder of its own, and the
    first to rename it wins, so nobody ever sees half a data set.

    Returns:
        `folder`.
    """
    if folder.is_dir():
        return folder
    from sklearn.datasets import (
        load_digits,
    )  # only who writes the shards needs scikit-learn

    digits = load_digits()
    folder.parent.mkdir(parents=True, exist_ok=True)
    mine = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        for shard in range(shards):
            path = mine / f"digits-{shard:02d}-of-{shards:02d}.tfrecord"
            with tf.io.TFRecordWriter(str(path)) as file:
                for i in range(shard, ROWS, shards):
                    pixels = digits.images[i].astype("uint8").tobytes()
                    file.write(_example(i, pixels, int(digits.target[i])))
        mine.chmod(0o755)  # mkdtemp's is private
        os.rename(mine, folder)
    except OSError:
        if not folder.is_dir():  # else another process was first
            raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)
    return folder


def _example(row: int, pixels: bytes, label: int) -> bytes:
    """A serialized tf.train.Example; `pixels` are 8 rows of 8 bytes with values 0..16."""
    feature = {
        "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
        "image": tf.train.Feature(bytes_list=tf.train.BytesList(value=[pixels])),
        "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
    }
    serialized: bytes = tf.train.Example(
        features=tf.train.Features(feature=feature)
    ).SerializeToString()
    return serialized


def _parse(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    row = tf.io.parse_single_example(serialized, FEATURES)
    pixels = tf.reshape(tf.io.decode_raw(row["image"], tf.uint8), [8, 8, 1])
    return {**row, "image": tf.cast(pixels, tf.float32) / 16.0}


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    print(f"{ROWS} digits in {write_shards(Path(sys.argv[1]))}")
