"""The zygotes serve all tests: importing TensorFlow takes longer than a schedule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.processes.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as made:
        yield made
