"""DistributedInput: input pipelines that run on other machines than the accelerators.

import distributed_input

with distributed_input.connect("train") as train:
    for batch in train.distribute(strategy):
        strategy.run(step, args=(batch,))
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

from distributed_input.api.errors import (
    ConfigError,
    DatasetFnError,
    DistributedInputError,
    FencedError,
    JobConflictError,
    PositionError,
    ProtocolError,
    ReplayError,
    ReplayWarning,
    RetryableError,
    SpecError,
    TerminalError,
    UnavailableError,
)
from distributed_input.order.indexed import Indexed
from distributed_input.rows.decode import Ragged, Sparse
from distributed_input.trainer.input import Input, connect

if TYPE_CHECKING:
    from distributed_input import keras as keras
    from distributed_input import transformers as transformers
    from distributed_input.runner.local import LocalRun, local

__all__ = [
    "ConfigError",
    "DatasetFnError",
    "DistributedInputError",
    "FencedError",
    "Indexed",
    "Input",
    "JobConflictError",
    "LocalRun",
    "PositionError",
    "ProtocolError",
    "Ragged",
    "ReplayError",
    "ReplayWarning",
    "RetryableError",
    "Sparse",
    "SpecError",
    "TerminalError",
    "UnavailableError",
    "connect",
    "local",
]

_LATER = {
    "keras": "distributed_input.keras",
    "local": "distributed_input.runner.local",
    "LocalRun": "distributed_input.runner.local",
    "transformers": "distributed_input.transformers",
}
"""Modules that are imported on first use: those for frameworks, and the runner's."""


def __dir__() -> list[str]:
    """Return the public names, which completion shows, and not what this module imports."""
    special = [name for name in globals() if name.startswith("__")]
    return sorted({*special, *__all__, *_LATER})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is needed only by some programs on its first use."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(_LATER[name])
        return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
