"""Read two epochs, and count the rows. A training loop would be here.

distributed-input run input.yaml -- python train.py
"""

from __future__ import annotations

import sys
import time
from collections import Counter

import distributed_input

ROWS = 1797
EPOCHS = 2

with distributed_input.connect() as digits:
    for epoch in range(1, EPOCHS + 1):
        start, seen = time.perf_counter(), Counter[int]()
        for batch in digits.numpy():
            seen.update(batch["id"].tolist())
        seconds = time.perf_counter() - start
        if seen != Counter(range(ROWS)):
            sys.exit(f"epoch {epoch}: {seen.total()} rows, {len(seen)} different, of {ROWS}")
        print(f"epoch {epoch}  {seen.total()} rows, each exactly once  {seconds:.1f} s", flush=True)
