"""Jobs with few and with many partitions: threads and memory of workers and sidecars."""

from __future__ import annotations

from collections.abc import Iterator

from testing.bench.case import OURS, OURS_GRPC, Case
from testing.bench.workloads import small_rows

BATCH = 8192


def cases(quick: bool) -> Iterator[Case]:
    """Yield cases with the same rows and 8, 64 and 1,024 partitions."""
    for partitions in (8,) if quick else (8, 64, 1024):
        yield Case(
            "partitions",
            f"{partitions} partitions",
            f"{small_rows.__name__}:dataset_fn",
            {"kind": "tokens", "batch": BATCH},
            systems=(OURS, OURS_GRPC),
            partitions=partitions,
            unit="krows",
        )
