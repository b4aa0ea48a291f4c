"""The artefacts under test, and the servers that they are installed from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.publishing import artifacts, krew, servers, version


@pytest.fixture(scope="session")
def dist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder in $RELEASE_ARTIFACTS, or one with the artefacts of this checkout."""
    if given := os.environ.get("RELEASE_ARTIFACTS"):
        return Path(given).resolve()
    folder = tmp_path_factory.mktemp("dist")
    artifacts.build_distributions(folder)
    artifacts.build_chart(folder, registry="")
    krew.build_plugin(folder, version.current(), "https://downloads.example/release")
    return folder


@pytest.fixture(scope="session")
def index(dist: Path) -> Iterator[str]:
    """Serve the artefacts as a package index. Yield its URL."""
    with servers.package_index(dist) as url:
        yield url
