"""Files of numbered records in three formats, of which some are corrupt."""

from __future__ import annotations

import http.client
import io
import json
import tarfile
import tempfile
import time
import urllib.request
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

import distributed_input

EVERY = 100
"""One of so many records is corrupt."""
_HEADER_BYTES, _FOOTER_BYTES = 12, 4


def is_corrupt(number: int) -> bool:
    """Return whether a record is corrupt."""
    return number % EVERY == EVERY // 3


def write(folder: Path, kind: str, files: int, rows: int) -> list[int]:
    """Write files of `rows` records each. Return the numbers of those that are not corrupt."""
    for file in range(files):
        numbers = range(file * rows, (file + 1) * rows)
        _WRITERS[kind](folder / f"{file:03}.{kind}", numbers)
    return [number for number in range(files * rows) if not is_corrupt(number)]


def _write_tfrecords(path: Path, numbers: range) -> None:
    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            writer.write(b"%08d" % number)
    data = bytearray(path.read_bytes())
    size = _HEADER_BYTES + 8 + _FOOTER_BYTES
    for at, number in enumerate(numbers):
        if is_corrupt(number):  # in its data, or in its length
            data[at * size + (_HEADER_BYTES if number % 2 else 0)] ^= 1
    path.write_bytes(data)


def _write_jsonl(path: Path, numbers: range) -> None:
    lines = [json.dumps({"id": n})[: 4 if is_corrupt(n) else None] + "\n" for n in numbers]
    path.write_text("".join(lines))


def _write_tar(path: Path, numbers: range) -> None:
    with tarfile.open(path, "w") as tar:
        for number in numbers:
            data = b"corrupt" if is_corrupt(number) else b"%d" % number
            member = tarfile.TarInfo(f"{number:08}.txt")
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))


_WRITERS = {"tfrecord": _write_tfrecords, "jsonl": _write_jsonl, "tar": _write_tar}


def _files(ctx: Any, folder: str, kind: str) -> list[str]:
    paths = sorted(map(str, Path(folder).glob(f"*.{kind}")))
    return paths[ctx.input_pipeline_id :: ctx.num_input_pipelines]


def tfrecord(ctx: Any, folder: str, batch: int = 0) -> tf.data.Dataset:
    """Read with the reader of TensorFlow, shuffle, and batch."""
    records = tf.data.TFRecordDataset(_files(ctx, folder, "tfrecord"))
    rows = records.shuffle(50, seed=1).map(lambda line: tf.strings.to_number(line, tf.int64))
    return rows.batch(ctx.get_per_replica_batch_size(batch)) if batch else rows


def jsonl(ctx: Any, folder: str, batch: int = 0) -> tf.data.Dataset:
    """Parse lines in parallel calls of Python, from files that are interleaved."""

    def parse(line: bytes) -> np.int64:
        return np.int64(json.loads(line)["id"])

    def read(path: tf.Tensor) -> tf.data.Dataset:
        return tf.data.TextLineDataset(path).map(
            lambda line: tf.ensure_shape(tf.numpy_function(parse, [line], tf.int64), []),
            num_parallel_calls=2,
        )

    files = tf.data.Dataset.from_tensor_slices(_files(ctx, folder, "jsonl"))
    rows = files.interleave(read, cycle_length=2)
    return rows.batch(ctx.get_per_replica_batch_size(batch)) if batch else rows


class Tar:
    """The members of tar files, by index. A failure of the disk: `broken` exists."""

    def __init__(self, paths: list[str], broken: str = "") -> None:
        self._members = []
        self._broken = Path(broken) if broken else None
        for path in paths:
            with tarfile.open(path) as tar:
                self._members += [(path, member.offset_data, member.size) for member in tar]

    def __len__(self) -> int:
        return len(self._members)

    def __getitem__(self, index: int) -> np.int64:
        path, offset, size = self._members[index]
        if self._broken and self._broken.exists() and index % 7 == 3:
            raise ConnectionResetError("the storage does not answer")
        with open(path, "rb") as file:
            file.seek(offset)
            return np.int64(int(file.read(size)))


def tar(ctx: Any, folder: str, broken: str = "", batch: int = 0) -> Tar:
    """Read members by index."""
    del ctx, batch
    return Tar(sorted(map(str, Path(folder).glob("*.tar"))), broken)


def _download(url: str, first: int = 0, last: int | None = None) -> bytes:
    span = {"Range": f"bytes={first}-{'' if last is None else last}"}
    try:
        with urllib.request.urlopen(urllib.request.Request(url, headers=span), timeout=20) as found:
            data: bytes = found.read()
    except (OSError, http.client.HTTPException) as error:
        raise distributed_input.RetryableError(f"{url}: {error}") from error
    return data


def _urls(ctx: Any, bucket: str, kind: str, files: int) -> list[str]:
    own = range(ctx.input_pipeline_id, files, ctx.num_input_pipelines)
    return [f"{bucket}/{file:03}.{kind}?alt=media" for file in own]


def tfrecord_objects(
    ctx: Any, bucket: str, downloads: str, files: int, batch: int
) -> tf.data.Dataset:
    """Download TFRecord files from object storage, and read them."""

    def read(url: bytes) -> bytes:
        path = Path(downloads) / url.decode().rpartition("/")[2]
        with tempfile.NamedTemporaryFile(dir=downloads, delete=False) as file:
            file.write(_download(url.decode()))
        return str(Path(file.name).rename(path)).encode()

    urls = tf.data.Dataset.from_tensor_slices(_urls(ctx, bucket, "tfrecord", files))
    paths = urls.map(lambda url: tf.ensure_shape(tf.numpy_function(read, [url], tf.string), []))
    rows = paths.interleave(tf.data.TFRecordDataset, cycle_length=2)
    rows = rows.map(lambda line: tf.strings.to_number(line, tf.int64))
    return rows.batch(ctx.get_per_replica_batch_size(batch))


def jsonl_objects(ctx: Any, bucket: str, files: int, batch: int) -> tf.data.Dataset:
    """Parse the lines of objects."""

    def read(url: bytes) -> np.ndarray[Any, Any]:
        return np.array(_download(url.decode()).splitlines(), object)

    def parse(line: bytes) -> np.int64:
        return np.int64(json.loads(line)["id"])

    def lines(url: tf.Tensor) -> tf.data.Dataset:
        found = tf.ensure_shape(tf.numpy_function(read, [url], tf.string), [None])
        return tf.data.Dataset.from_tensor_slices(found)

    rows = tf.data.Dataset.from_tensor_slices(_urls(ctx, bucket, "jsonl", files)).flat_map(lines)
    rows = rows.map(lambda line: tf.ensure_shape(tf.numpy_function(parse, [line], tf.int64), []))
    return rows.batch(ctx.get_per_replica_batch_size(batch))


class TarObjects(Tar):
    """The members of tar files in object storage, which it requests by their ranges."""

    def __init__(self, folder: str, bucket: str) -> None:
        super().__init__(sorted(map(str, Path(folder).glob("*.tar"))))  # where they are
        self._bucket = bucket

    def __getitem__(self, index: int) -> np.int64:
        path, offset, size = self._members[index]
        url = f"{self._bucket}/{Path(path).name}?alt=media"
        return np.int64(int(_download(url, offset, offset + size - 1)))


def tar_objects(ctx: Any, bucket: str, folder: str, batch: int = 0) -> TarObjects:
    """Read members of tar files in object storage by index."""
    del ctx, batch
    return TarObjects(folder, bucket)


def vectorized(ctx: Any, folder: str, batch: int) -> tf.data.Dataset:
    """Parse batches: an error is that of many rows."""
    lines = tf.data.TextLineDataset(_files(ctx, folder, "jsonl"))
    batches = lines.batch(ctx.get_per_replica_batch_size(batch))
    return batches.map(lambda many: tf.strings.to_number(tf.strings.substr(many, 7, 1), tf.int64))


def missing(ctx: Any, folder: str, batch: int) -> tf.data.Dataset:
    """Read three files, of which the second one does not exist."""
    del ctx
    names = [f"{folder}/000.jsonl", f"{folder}/absent", f"{folder}/001.jsonl"]
    files = tf.data.Dataset.from_tensor_slices(names)
    return files.map(tf.io.read_file).map(tf.strings.length).batch(batch)


def iterable(ctx: Any, folder: str, seconds: float = 0.0) -> Any:
    """Yield rows from Python, which ends at the first error."""
    for path in _files(ctx, folder, "jsonl"):
        for line in Path(path).read_text().splitlines():
            time.sleep(seconds)
            yield np.int64(json.loads(line)["id"])
