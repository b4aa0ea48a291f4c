"""Rows that carry their epoch, their split and their index in it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np


def uneven(ctx: Any, sizes: Sequence[int], kib: int = 32) -> Iterator[dict[str, Any]]:
    """Yield sizes[s] rows of `kib` KiB in split s."""
    split, filler = ctx.input_pipeline_id, np.zeros(kib << 10, np.uint8)
    for row in range(sizes[split]):
        yield {"name": np.array([ctx.epoch, split, row], np.int64), "bytes": filler}


def mixed(ctx: Any, sizes: Mapping[str, Sequence[int]]) -> Iterator[dict[str, Any]]:
    """Yield sizes[s][i] rows in split i of source s of a mixture."""
    split = ctx.input_pipeline_id
    for row in range(sizes[ctx.source][split]):
        name = np.array([ctx.epoch, split, row], np.int64)
        yield {"source": ctx.source.encode(), "name": name, "key": f"{ctx.source}-{split}-{row}"}
