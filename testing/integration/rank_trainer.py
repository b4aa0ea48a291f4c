"""One rank of a trainer, without TensorFlow. It answers each line of its input with a line.

`next`: the row ids of the next batch, or null at the end of the epoch. `position`: the position, as
hexadecimal text. The argument is the position at which to begin, or nothing.
"""

from __future__ import annotations

import json
import sys

import distributed_input

with distributed_input.connect(timeout=20) as data:
    if len(sys.argv) > 1:
        data.restore(bytes.fromhex(sys.argv[1]))
    batches = data.numpy()
    print(json.dumps(data.consumer), flush=True)
    for line in sys.stdin:
        if line.strip() == "position":
            print(json.dumps(data.position().hex()), flush=True)
            continue
        batch = next(batches, None)
        print(json.dumps(None if batch is None else batch["id"].tolist()), flush=True)
