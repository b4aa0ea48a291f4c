"""Parquet files, in a folder or in object storage. Reads only the columns that it names."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow.parquet as pq

import storage

BATCH = 64  # rows of a global batch
COLUMNS = ["id", "image", "label"]


def dataset_fn(ctx: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield batches: {"id": int64 [b], "image": uint8 [b, 8, 8], "label": int64 [b]}."""
    batch = ctx.get_per_replica_batch_size(BATCH)
    files, paths = storage.files_of_split(ctx, url, ".parquet")
    return _batches(files, paths, batch)


def _batches(files: Any, paths: list[str], batch: int) -> Iterator[dict[str, Any]]:
    with storage.retryable():
        for path in paths:
            with files.open_input_file(path) as file:
                rows = pq.ParquetFile(file, pre_buffer=True)
                for part in rows.iter_batches(batch_size=batch, columns=COLUMNS):
                    images = b"".join(part["image"].to_pylist())
                    yield {
                        "id": part["id"].to_numpy(),
                        "image": np.frombuffer(images, np.uint8).reshape(-1, 8, 8),
                        "label": part["label"].to_numpy(),
                    }
