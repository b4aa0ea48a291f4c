"""The zygotes for all tests here. The import of TensorFlow takes longer than a schedule."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.processes.forks import Forks


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    with Forks() as started:
        yield started
