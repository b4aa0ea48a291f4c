"""One rank of a mesh, without TensorFlow: ranks with the same data rank read the same batches.

It answers each line of its input with a line. `next`: a digest and the row ids of the next batch,
or null at the end of the epoch. `position`: the position, as hexadecimal text. The arguments are
the number of data ranks, and the position at which to begin, or nothing.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys

import distributed_input

data_size = int(sys.argv[1])
model_size = int(os.environ["WORLD_SIZE"]) // data_size
data_rank = int(os.environ["RANK"]) // model_size
with distributed_input.connect(data_rank=data_rank, data_size=data_size, timeout=20) as data:
    if len(sys.argv) > 2:
        data.restore(bytes.fromhex(sys.argv[2]))
    batches = data.numpy()
    print(json.dumps(data.consumer), flush=True)
    for line in sys.stdin:
        if line.strip() == "position":
            print(json.dumps(data.position().hex()), flush=True)
            continue
        batch = next(batches, None)
        answer = None
        if batch is not None:
            digest = hashlib.sha256(b"".join(batch[key].tobytes() for key in sorted(batch)))
            answer = [digest.hexdigest(), batch["id"].tolist()]
        print(json.dumps(answer), flush=True)
