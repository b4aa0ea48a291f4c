from __future__ import annotations

import types
from collections.abc import Callable
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.trainer.frameworks import loops

_FETCHER = """
class Fetcher:
    def __init__(self, length):
        self.length, self.prefetch_batches = length, 1
    def next(self, ask):
        return ask()
def call(ask):
    return ask()
"""


def _module(name: str) -> Any:
    module = types.ModuleType(name)
    exec(_FETCHER, vars(module))  # its functions have the globals of this module
    return module


def _ask() -> int:
    # Frameworks call through functions of their own and of PyTorch.
    inner: Callable[[], int] = lambda: loops.batches_ahead("train")  # noqa: E731
    return inner()


def test_a_loop_of_the_user_uses_what_it_gets() -> None:
    assert _ask() == 0


@pytest.mark.parametrize("name", ["lightning.pytorch", "pytorch_lightning"])
def test_lightning_is_one_batch_ahead_unless_it_has_a_length(name: str) -> None:
    module = _module(f"{name}.loops.fetchers")
    assert module.Fetcher(None).next(_ask) == 1
    assert module.Fetcher(10).next(_ask) == 0


def test_what_accelerate_would_divide_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"input train .* without a DataLoader"):
        _module("accelerate.data_loader").call(_ask)
