"""What each unit test finds and leaves."""

from __future__ import annotations

import sys
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def unseeded() -> Iterator[None]:
    """Leave no seed of TensorFlow to the next test, in whatever order they run."""
    yield
    context = sys.modules.get("tensorflow.python.eager.context")
    if context is not None and context.global_seed() is not None:
        sys.modules["tensorflow"].random.set_seed(None)
