"""DistributedInput: input pipelines that run on other machines than the accelerators.

import distributed_input

with distributed_input.connect("train") as train:
    for batch in train.distribute(strategy):
        strategy.run(step, args=(batch,))
"""

from __future__ import annotations

import importlib
from typing import Any

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


def __getattr__(name: str) -> Any:
    """Import `distributed_input.keras` on first use: it imports Keras."""
    if name == "keras":
        return importlib.import_module("distributed_input.keras")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
