"""The photos example: each row needs a millisecond of CPU."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

from testing.bench.case import REPO, Case

if TYPE_CHECKING:
    import tensorflow as tf


def dataset_fn(ctx: tf.distribute.InputContext, folder: str) -> tf.data.Dataset:
    """Return the example's dataset, endless."""
    sys.path.append(str(REPO / "examples" / "photos"))
    import photos

    return photos.dataset_fn(ctx, folder).repeat()


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with one, two and four workers."""
    for workers in (2,) if quick else (1, 2, 4):
        target, args = f"{__name__}:dataset_fn", {"folder": "data"}
        # With DYNAMIC, tf.data service delivers every row once; its unit is then a file.
        yield Case("photos", "224x224 from JPEG", target, args, workers, sharding="DYNAMIC")
