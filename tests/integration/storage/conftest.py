"""The digits in each format, in a folder and in two object storages, and workers that read them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from testing import examples
from testing.integration.cluster import Cluster
from testing.storage import servers
from testing.storage.faulty_proxy import FaultyProxy, faulty_proxy
from testing.storage.workers import FOLDER, example_workers

FORMATS = ("tfrecords", "parquet", "tars", "images", "huggingface")


@dataclass(frozen=True)
class Storages:
    """The places of the data.

    Attributes:
        cluster: with two workers that can read all of them.
        folders: URLs of the parents of the formats' folders: pvc, s3, gs.
        proxies: the proxies before s3 and gs.
    """

    cluster: Cluster
    folders: Mapping[str, str]
    proxies: Mapping[str, FaultyProxy]


@pytest.fixture(scope="session")
def _storages(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Storages]:
    root = tmp_path_factory.mktemp("buckets")
    bucket = root / "data"
    write_all(bucket)
    with (
        servers.s3(root) as s3,
        servers.gcs(root) as gs,
        faulty_proxy(s3.address) as before_s3,
        faulty_proxy(gs.address) as before_gs,
        Cluster() as cluster,
    ):
        environment = s3.environment(before_s3.address) | gs.environment(before_gs.address)
        folders = {"pvc": str(bucket), "s3": "s3://data", "gs": "gs://data"}
        with example_workers(cluster, 2, environment):
            yield Storages(cluster, folders, {"s3": before_s3, "gs": before_gs})


@pytest.fixture
def storages(_storages: Storages) -> Iterator[Storages]:
    """Yield the storages without faults. Sidecars stop at the end of the test."""
    for proxy in _storages.proxies.values():
        proxy.clear()
    yield _storages
    _storages.cluster.remove(_storages.cluster.sidecars)
    _storages.cluster.sidecars.clear()


def write_all(folder: Path) -> None:
    """Write all formats with the example's program."""
    program = (
        "import sys, write; [write.write(name, f'{sys.argv[1]}/{name}') for name in write.FORMATS]"
    )
    subprocess.run(
        [examples.PYTHON, "-c", program, str(folder)],
        cwd=FOLDER,
        check=True,
        capture_output=True,
        timeout=200,
    )
