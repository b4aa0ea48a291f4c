"""DistributedInput: input pipelines that run on other machines than the accelerators.

import distributed_input

with distributed_input.connect("train") as train:
    for batch in train.distribute(strategy):
        strategy.run(step, args=(batch,))
"""

from __future__ import annotations

import importlib.util
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
from distributed_input.trainer.lineage import Lineage

if TYPE_CHECKING:
    from distributed_input import keras as keras
    from distributed_input import transformers as transformers
    from distributed_input.graph.boundaries import boundary
    from distributed_input.graph.sequence_packing import pack
    from distributed_input.runner.local import LocalRun, local

__all__ = [
    "ConfigError",
    "DatasetFnError",
    "DistributedInputError",
    "FencedError",
    "Indexed",
    "Input",
    "JobConflictError",
    "Lineage",
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
    "boundary",
    "connect",
    "local",
    "pack",
]

_FRAMEWORKS = ("keras", "transformers")
"""Packages with a module of the same name here."""
_LATER = {
    **{name: f"distributed_input.{name}" for name in _FRAMEWORKS},
    "boundary": "distributed_input.graph.boundaries",
    "local": "distributed_input.runner.local",
    "LocalRun": "distributed_input.runner.local",
    "pack": "distributed_input.graph.sequence_packing",
}
"""Modules that are imported on first use."""


def __dir__() -> list[str]:
    """Return the public names, which completion shows, and not what this module imports."""
    special = [name for name in globals() if name.startswith("__")]
    installed = [name for name in _FRAMEWORKS if importlib.util.find_spec(name)]
    return sorted({*special, *__all__, *installed})


if not TYPE_CHECKING:

    def __getattr__(name: str) -> object:
        """Import what is needed only by some programs on its first use."""
        if name not in _LATER:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        module = importlib.import_module(_LATER[name])
        return module if module.__name__ == f"{__name__}.{name}" else getattr(module, name)
