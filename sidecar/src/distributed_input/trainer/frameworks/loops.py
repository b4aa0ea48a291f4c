"""What the loop that requests a batch does with it, if it is the loop of a known framework.

This module depends on internals of Lightning and Accelerate: it reads the stack frames of the
callers. Neither has an interface for it. These were tried, with Lightning 2.6 and Accelerate 1.15:

- A callback of Lightning that counts batches. A user who forgets it would lose a batch at each
  resume, and Lightning restores the dataset's own state after those of callbacks.
- A length, so that Lightning does not fetch ahead. It is not known before the end of an epoch.
- A mark on a dataset that Accelerate must not divide. There is none (accelerate#4201).
"""

from __future__ import annotations

import inspect
from types import FrameType

from distributed_input.api.errors import ConfigError

_LIGHTNING = frozenset(("lightning.pytorch.loops.fetchers", "pytorch_lightning.loops.fetchers"))
_ACCELERATE = "accelerate.data_loader"


def batches_ahead(name: str) -> int:
    """Return how many batches of input `name` the calling loop fetches before it uses them.

    Raises:
        ConfigError: Accelerate would divide the batches among the processes again, or send those of
            one process to the others.
    """
    frame: FrameType | None = inspect.currentframe()
    while frame is not None:
        module = frame.f_globals.get("__name__")
        if module == _ACCELERATE:
            raise ConfigError(
                f"input {name} is in a DataLoader that Accelerate has prepared. Accelerate would "
                "divide its batches again, which are the share of this process already. Use the "
                "dataset that torch() returns without a DataLoader: prepare() leaves it as it is, "
                "and register_for_checkpointing() saves its position. With a transformers.Trainer, "
                "use distributed_input.transformers.InputMixin"
            )
        if module in _LIGHTNING:
            fetcher = frame.f_locals.get("self")
            if getattr(fetcher, "length", None) is None:  # it looks for the end of the epoch
                return int(getattr(fetcher, "prefetch_batches", 0))
        frame = frame.f_back
    return 0
