"""One rank of a trainer, without TensorFlow. It answers each line of its input with a line.

`next`: the row ids of the next batch, or null at the end of the epoch; in a mesh, its digest before
them. `position`: the position, as hexadecimal text. The arguments are the number of data ranks, or
0 without a mesh, and the position at which to begin, or nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from typing import Any

import distributed_input

mesh: dict[str, Any] = {}
if data_size := int(sys.argv[1]):
    model_size = int(os.environ["WORLD_SIZE"]) // data_size
    mesh = {"data_rank": int(os.environ["RANK"]) // model_size, "data_size": data_size}
with distributed_input.connect(**mesh, timeout=20) as data:
    if len(sys.argv) > 2:
        data.restore(bytes.fromhex(sys.argv[2]))
    batches = data.numpy()
    print(json.dumps(data.consumer), flush=True)
    for line in sys.stdin:
        if line.strip() == "position":
            print(json.dumps(data.position().hex()), flush=True)
            continue
        batch = next(batches, None)
        answer: Any = None
        if batch is not None:
            answer = batch["id"].tolist()
            if mesh:
                digest = hashlib.sha256(b"".join(batch[key].tobytes() for key in sorted(batch)))
                answer = [digest.hexdigest(), answer]
        print(json.dumps(answer), flush=True)
