"""WebDataset tars, in a folder or in object storage.

Files with the same name up to the first dot are one row: 00017.png and 00017.cls.
"""

from __future__ import annotations

import itertools
import tarfile
from collections.abc import Iterator
from typing import Any, BinaryIO

import numpy as np
import tensorflow as tf

import storage


def dataset_fn(ctx: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield rows: {"id": int64 [], "image": uint8 [8, 8], "label": int64 []}."""
    files, paths = storage.files_of_split(ctx, url, ".tar")
    return _rows(files, paths)


def _rows(files: Any, paths: list[str]) -> Iterator[dict[str, Any]]:
    with storage.retryable():
        for path in paths:
            with files.open_input_stream(path, buffer_size=1 << 20) as file:
                for key, parts in itertools.groupby(_members(file), key=lambda part: part[0]):
                    row = {extension: data for _, extension, data in parts}
                    yield {
                        "id": np.int64(key),
                        "image": tf.io.decode_png(row["png"], channels=1)[..., 0].numpy(),
                        "label": np.int64(row["cls"]),
                    }


def _members(file: BinaryIO) -> Iterator[tuple[str, str, bytes]]:
    """Yield key, extension and bytes of each file in a tar, in one pass without seeking."""
    try:
        with tarfile.open(fileobj=file, mode="r|") as tar:
            for member in tar:
                if member.isfile() and (data := tar.extractfile(member)):
                    key, _, extension = member.name.rpartition("/")[2].partition(".")
                    yield key, extension, data.read()
    except tarfile.ReadError as error:
        raise OSError(f"the tar is incomplete: {error}") from error
