"""A Hugging Face dataset that `save_to_disk` wrote to a folder or to object storage.

Each shard of it is a file in the Arrow format. For a dataset in Parquet files, see parquet.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pyarrow as pa
from datasets import Dataset

import storage

BATCH = 64  # rows of a global batch


def dataset_fn(ctx: Any, url: str) -> Iterator[dict[str, Any]]:
    """Yield batches: {"id": int64 [b], "image": uint8 [b, 8, 8], "label": int64 [b]}."""
    batch = ctx.get_per_replica_batch_size(BATCH)
    files, paths = storage.files_of_split(ctx, url, ".arrow")
    return _batches(files, paths, batch)


def _batches(files: Any, paths: list[str], batch: int) -> Iterator[dict[str, Any]]:
    with storage.retryable():
        for path in paths:
            with files.open_input_stream(path, buffer_size=1 << 20) as file:
                shard = Dataset(pa.ipc.open_stream(file).read_all())
            for rows in shard.with_format("numpy").iter(batch_size=batch):
                yield {
                    "id": rows["id"],
                    "image": np.asarray(rows["image"], np.uint8),
                    "label": rows["label"],
                }
