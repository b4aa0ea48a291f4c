"""The dataset: a few thousand JPEG photographs, decoded, cropped, flipped and resized.

The pictures are windows of the photographs that scikit-learn and scikit-image bundle, each cut
out elsewhere and encoded anew, so that every row costs what a row of ImageNet costs (about
500x375 pixels) and no two are alike. Every row has an id, 0 to ROWS - 1.

    python examples/photos/photos.py FOLDER      write the shards
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path

import tensorflow as tf

ROWS = 2560
SIZE = 224  # pixels, height and width of a row
BATCH = 64  # rows of a global batch
WINDOW = (375, 500)  # pixels, height and width of a picture on disk

PICTURES = [
    ("sklearn.datasets.images", "china.jpg"),
    ("sklearn.datasets.images", "flower.jpg"),
    ("skimage.data", "hubble_deep_field.jpg"),
    ("skimage.data", "retina.jpg"),
    ("skimage.data", "rocket.jpg"),
]

FEATURES = {
    "id": tf.io.FixedLenFeature([], tf.int64),
    "jpeg": tf.io.FixedLenFeature([], tf.string),
    "label": tf.io.FixedLenFeature([], tf.int64),
}


def dataset_fn(ctx: tf.distribute.InputContext, folder: str = "data") -> tf.data.Dataset:
    """One input pipeline's share of the photos, as `distribute_datasets_from_function` takes it.

    The images stay uint8: a quarter of float32's bytes on the way to the accelerator, which
    casts and scales them in no time.

    Args:
        ctx: which of how many pipelines this is.
        folder: of the shards, relative to this file; written first where it is missing.

    Returns:
        Batches of {"id": int64 [b], "image": uint8 [b, 224, 224, 3], "label": int64 [b]}.
    """
    shards = write_shards(Path(__file__).parent / folder)
    names = tf.data.Dataset.list_files(str(shards / "*.tfrecord"), shuffle=False)
    names = names.shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    rows = names.interleave(tf.data.TFRecordDataset, cycle_length=4)
    rows = rows.shuffle(256)
    rows = rows.map(_augment, num_parallel_calls=tf.data.AUTOTUNE)
    return rows.batch(ctx.get_per_replica_batch_size(BATCH)).prefetch(tf.data.AUTOTUNE)


def _augment(serialized: tf.Tensor) -> dict[str, tf.Tensor]:
    """What an image classifier is trained on: a random box of the picture, perhaps mirrored."""
    row = tf.io.parse_single_example(serialized, FEATURES)
    jpeg = row.pop("jpeg")
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        bounding_boxes=tf.zeros([1, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        use_image_if_no_bounding_boxes=True,
        seed=1,  # workers run deterministic ops, which want one; every epoch makes its own of it
    )
    window = tf.concat([begin[:2], size[:2]], axis=0)  # y, x, height, width
    image = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
    image = tf.image.random_flip_left_right(image)
    image = tf.image.resize(image, [SIZE, SIZE])
    return {**row, "image": tf.saturate_cast(tf.round(image), tf.uint8)}


def write_shards(folder: Path, rows: int = ROWS, shards: int = 32) -> Path:
    """Write the photos as TFRecord files, unless `folder` is there already.

    Any number of processes may call this at once: each writes a folder of its own, and the
    first to rename it wins, so nobody ever sees half a data set.

    Returns:
        `folder`.
    """
    if folder.is_dir():
        return folder
    folder.parent.mkdir(parents=True, exist_ok=True)
    mine = Path(tempfile.mkdtemp(prefix=f".{folder.name}-", dir=folder.parent))
    try:
        names = [mine / f"photos-{i:02d}-of-{shards:02d}.tfrecord" for i in range(shards)]
        writers = [tf.io.TFRecordWriter(str(name)) for name in names]
        for row, example in enumerate(_examples(rows)):
            writers[row % shards].write(example)
        for writer in writers:
            writer.close()
        mine.chmod(0o755)  # mkdtemp's is private
        os.rename(mine, folder)
    except OSError:
        if not folder.is_dir():  # else another process was first
            raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)
    return folder


def _examples(rows: int) -> Iterator[bytes]:
    """Serialized tf.train.Examples with ids 0 to rows - 1, the same in every process."""
    chance = random.Random(0)
    pictures = [tf.io.decode_jpeg((files(m) / name).read_bytes()) for m, name in PICTURES]
    for row in range(rows):
        label = row % len(pictures)
        picture = pictures[label]
        y = chance.randint(0, picture.shape[0] - WINDOW[0])
        x = chance.randint(0, picture.shape[1] - WINDOW[1])
        window = picture[y : y + WINDOW[0], x : x + WINDOW[1]]
        jpeg = tf.io.encode_jpeg(window, quality=92).numpy()
        feature = {
            "id": tf.train.Feature(int64_list=tf.train.Int64List(value=[row])),
            "jpeg": tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
            "label": tf.train.Feature(int64_list=tf.train.Int64List(value=[label])),
        }
        features = tf.train.Features(feature=feature)
        yield tf.train.Example(features=features).SerializeToString()


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(f"usage: python {sys.argv[0]} FOLDER")
    print(f"{ROWS} photos in {write_shards(Path(sys.argv[1]))}")
