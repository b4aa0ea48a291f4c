"""The cost of the replay check in a worker: `python -m testing.bench.digest`.

Prints CPU seconds per GB and nanoseconds per row for several row sizes. Each value is the best of
five.
"""

from __future__ import annotations

import time

import numpy as np

from distributed_input.rows.digest import row_digests

_SIZES = {8: 100_000, 256: 4096, 784: 1024, 128 << 10: 32, 224 * 224 * 3: 8}
_SECONDS = 0.3


def measure(width: int, rows: int) -> float:
    """Return CPU seconds for the digests of this number of rows, each `width` bytes."""
    data = np.random.default_rng(0).integers(0, 255, width * rows).astype(np.uint8)
    row_digests([width], [data], rows, 0)
    began, runs = time.process_time(), 0
    while time.process_time() - began < _SECONDS:
        row_digests([width], [data], rows, 0)
        runs += 1
    return (time.process_time() - began) / runs


def main() -> None:
    """Print a line for each row size."""
    print("| Bytes per row | CPU s per GB | ns per row |\n|---|---|---|")
    for width, rows in _SIZES.items():
        seconds = min(measure(width, rows) for _ in range(5)) / rows
        print(f"| {width:,} | {seconds / width * 1e9:.3f} | {seconds * 1e9:,.0f} |")


if __name__ == "__main__":
    main()
