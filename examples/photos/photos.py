"""The dataset: a few thousand JPEG photographs, decoded, cropped, flipped and resized.

The pictures are windows of photographs from scikit-learn and scikit-image. Each window is cut at
another place and encoded separately, so no two are equal. A row costs as much as a row of ImageNet
(about 500x375 pixels). Every row has an id, 0 to ROWS - 1.

    python examples/photos/photos.py FOLDER      # writes the shards
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
    """Return one input pipeline's share, for `distribute_datasets_from_function`.

    The images stay uint8. They need a quarter of the bytes of float32 on the way to the
    accelerator, which casts and scales them quickly.

    Args:
        ctx: index of this pipeline and number of pipelines.
        folder: folder of the shards, relative to this file. Written if it does not exist.

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
    """Decode a random box of the picture, flip it at random and resize it."""
    row = tf.io.parse_single_example(serialized, FEATURES)
    jpeg = row.pop("jpeg")
    begin, size, _ = tf.image.sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(jpeg),
        bounding_boxes=tf.zeros([1, 0, 4]),
        area_range=(0.08, 1.0),
        aspect_ratio_range=(3 / 4, 4 / 3),
        use_image_if_no_bounding_boxes=True,
        seed=1,  # deterministic ops need a seed; workers derive a new one for every epoch
    )
    window = tf.concat([begin[:2], size[:2]], axis=0)  # y, x, height, width
    image = tf.io.decode_and_crop_jpeg(jpeg, window, channels=3)
    image = tf.image.random_flip_left_right(image)
    image = tf.image.resize(image, [SIZE, SIZE])
    return {**row, "image": tf.saturate_cast(tf.round(image), tf.uint8)}


def write_shards(folder: Path, rows: int = ROWS, shards: int = 32) -> Path:
    """Write the photos as TFRecord files if `folder` does not exist.

    Any number of processes may call this at the same time. Each writes its own folder, and the
    first one renames it to `folder`. No process can read an incomplete data set.

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
        mine.chmod(0o755)  # mkdtemp creates a private folder
        os.rename(mine, folder)
    except OSError:
        if not folder.is_dir():  # otherwise another process was first
            raise
    finally:
        shutil.rmtree(mine, ignore_errors=True)
    return folder


def _examples(rows: int) -> Iterator[bytes]:
    """Yield serialized tf.train.Examples with ids 0 to rows - 1, equal in every process."""
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
