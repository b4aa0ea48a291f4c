"""One dispatcher, two workers and one process with two replicas serve all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.integration import devices
from tests.integration.conftest import _shared, cluster, shared

__all__ = ["_shared", "cluster", "shared"]

assert devices.CPUS  # configured before TensorFlow starts


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Every test here is a row of the page, or it belongs elsewhere."""
    here = Path(__file__).parent
    unmarked = [i.nodeid for i in items if here in i.path.parents and not _is_marked(i)]
    if unmarked:
        raise pytest.UsageError(f"not marked with @behaviour: {', '.join(unmarked)}")


def _is_marked(item: pytest.Item) -> bool:
    return item.get_closest_marker("behaviour") is not None
