"""DistributedInput: input pipelines that run beside accelerators, not on their hosts.

import distributed_input

with distributed_input.connect("train") as train:
    for batch in train.distribute(strategy):
        strategy.run(step, args=(batch,))
"""

from distributed_input.api.errors import DistributedInputError, RetryableError, TerminalError
from distributed_input.client.input import Input, connect
from distributed_input.rows.decode import Ragged, Sparse

__all__ = [
    "DistributedInputError",
    "Input",
    "Ragged",
    "RetryableError",
    "Sparse",
    "TerminalError",
    "connect",
]
