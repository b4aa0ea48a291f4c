"""Write the digits of scikit-learn in one format, to a folder or to object storage.

python examples/data/write.py parquet digits    # a folder beside this file
python examples/data/write.py tars s3://BUCKET/PREFIX
"""

from __future__ import annotations

import io
import sys
import tarfile
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import tensorflow as tf
from pyarrow import fs
from sklearn.datasets import load_digits

import storage

ROWS = 1797
SHARDS = 12  # files, except of images


def shards(suffix: str) -> Iterator[tuple[str, range]]:
    """Yield the name of each file, and the rows in it."""
    for shard in range(SHARDS):
        yield f"digits-{shard:02d}-of-{SHARDS:02d}.{suffix}", range(shard, ROWS, SHARDS)


def parquet(folder: Path, pixels: Any, labels: Any) -> None:
    """Write Parquet files with row groups of 64 rows."""
    for name, rows in shards("parquet"):
        columns = {
            "id": pa.array(rows, pa.int64()),
            "image": pa.array([pixels[row].tobytes() for row in rows], pa.binary()),
            "label": pa.array([labels[row] for row in rows], pa.int64()),
        }
        pq.write_table(pa.table(columns), folder / name, row_group_size=64)


def tfrecords(folder: Path, pixels: Any, labels: Any) -> None:
    """Write TFRecord files of tf.train.Examples."""
    for name, rows in shards("tfrecord"):
        with tf.io.TFRecordWriter(str(folder / name)) as writer:
            for row in rows:
                example = tf.train.Example()
                feature = example.features.feature
                feature["id"].int64_list.value.append(row)
                feature["image"].bytes_list.value.append(pixels[row].tobytes())
                feature["label"].int64_list.value.append(labels[row])
                writer.write(example.SerializeToString())


def tars(folder: Path, pixels: Any, labels: Any) -> None:
    """Write tars with a PNG and a label for each row."""
    for name, rows in shards("tar"):
        with tarfile.open(folder / name, "w") as tar:
            for row in rows:
                label = str(labels[row]).encode()
                for extension, data in (("png", _png(pixels[row])), ("cls", label)):
                    member = tarfile.TarInfo(f"{row:05d}.{extension}")
                    member.size = len(data)
                    tar.addfile(member, io.BytesIO(data))


def images(folder: Path, pixels: Any, labels: Any) -> None:
    """Write a PNG for each row into a folder for each label."""
    for row, label in enumerate(labels):
        (folder / str(label)).mkdir(exist_ok=True)
        (folder / str(label) / f"{row:05d}.png").write_bytes(_png(pixels[row]))


def huggingface(folder: Path, pixels: Any, labels: Any) -> None:
    """Save a Hugging Face dataset. In a program, `load_dataset` would return it."""
    from datasets import Array2D, Dataset, Features, Value

    features = {"id": Value("int64"), "image": Array2D((8, 8), "uint8"), "label": Value("int64")}
    columns = {"id": np.arange(ROWS), "image": pixels, "label": labels}
    Dataset.from_dict(columns, Features(features)).save_to_disk(folder, num_shards=SHARDS)


def _png(image: Any) -> bytes:
    encoded: bytes = tf.io.encode_png(image[..., None]).numpy()
    return encoded


FORMATS = {one.__name__: one for one in (tfrecords, parquet, tars, images, huggingface)}


def write(name: str, url: str) -> None:
    """Write a format to a temporary folder, and copy its files to the URL."""
    digits = load_digits()
    files, root = storage.connect(url)
    with tempfile.TemporaryDirectory() as folder:
        FORMATS[name](Path(folder), digits.images.astype(np.uint8), digits.target)
        if isinstance(files, fs.LocalFileSystem):
            files.create_dir(root)
        fs.copy_files(folder, root, destination_filesystem=files)


if __name__ == "__main__":
    if len(sys.argv) != 3 or sys.argv[1] not in FORMATS:
        sys.exit(f"usage: python {sys.argv[0]} {'|'.join(FORMATS)} URL")
    write(*sys.argv[1:])
    print(f"{ROWS} digits in {sys.argv[2]}")
