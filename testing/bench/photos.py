"""The photos example: rows that cost a millisecond of CPU each to make."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from testing.bench.case import REPO, Case

if TYPE_CHECKING:
    import tensorflow as tf


def dataset_fn(ctx: tf.distribute.InputContext, folder: str) -> tf.data.Dataset:
    """The example's dataset, endless."""
    sys.path.append(str(REPO / "examples" / "photos"))
    import photos

    return photos.dataset_fn(ctx, folder).repeat()


def cases(quick: bool) -> Iterator[Case]:
    """One, two and four workers."""
    for workers in (2,) if quick else (1, 2, 4):
        target, args = f"{__name__}:dataset_fn", {"folder": "data"}
        # DYNAMIC is how tf.data service delivers every row once; its unit is then a file.
        yield Case("photos", "224x224 from JPEG", target, args, workers, sharding="DYNAMIC")
