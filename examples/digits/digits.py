"""The dataset: 1,797 handwritten digits as TFRecord shards, and the function that reads them.

The digits come from scikit-learn (8x8 pixels, ten classes). Every row has an id, 0 to 1,796.
Every fifth row is reserved for tests and never used for training.

    python examples/digits/digits.py FOLDER      # writes the shards
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
    """Return one input pipeline's share, for `distribute_datasets_from_function`.

    Args:
        ctx: index of this pipeline and number of pipelines.
        folder: folder of the shards, relative to this file. Written if it does not exist.
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
    """Return the ids of a part. An epoch of it must deliver each id exactly once."""
    return {i for i in range(ROWS) if (i % TEST_EVERY == 0) == (part == "test")}


def write_shards(folder: Path, shards: int = 12) -> Path:
    """Write the digits as TFRecord files if `folder` does not exist.

    Any number of processes may call this at the same time. Each writes its own folder, and the
    first one renames it to `folder`. No process can read an incomplete data set.

    Returns:
        `folder`.
    """
    if folder.is_dir():
        return folder
    from sklearn.datasets import (
        load_digits,
    )  # only needed to write the shards

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
        mine.chmod(0o755)  # mkdtemp creates a private folder
        os.rename(mine, folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was first
            raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)
    return folder


def _example(row: int, pixels: bytes, label: int) -> bytes:
    """Return a serialized tf.train.Example; `pixels`: 8 rows of 8 bytes with values 0..16."""
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
