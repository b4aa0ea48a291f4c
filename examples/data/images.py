"""Image folders: one folder for each label, one file for each image: 7/00017.png.

Each image is a request to object storage, and each split lists all files. Above some 10,000 images,
write tars or Parquet.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import PurePath
from typing import Any

import numpy as np
import tensorflow as tf

import storage


def dataset_fn(ctx: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield rows: {"id": int64 [], "image": uint8 [8, 8], "label": int64 []}."""
    files, paths = storage.files_of_split(ctx, url, ".png")
    return _rows(files, paths)


def _rows(files: Any, paths: list[str]) -> Iterator[dict[str, Any]]:
    with storage.retryable():
        for path in map(PurePath, paths):
            with files.open_input_stream(str(path)) as file:
                image = tf.io.decode_png(file.read(), channels=1)
            yield {
                "id": np.int64(path.stem),
                "image": image[..., 0].numpy(),
                "label": np.int64(path.parent.name),
            }
