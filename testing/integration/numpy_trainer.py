"""A trainer without TensorFlow: prints the row ids of one epoch as JSON."""

from __future__ import annotations

import json
import sys

import distributed_input

with distributed_input.connect(timeout=20) as data:
    found = [int(row) for batch in data.numpy() for row in batch["id"]]
assert "tensorflow" not in sys.modules
print(json.dumps(found))
