"""Permissions of the files that sidecar and trainer share."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.files import SOCKET_NAME
from distributed_input.client.channel import Channel
from distributed_input.sidecar.delivery.slot_pool import Ring
from distributed_input.sidecar.input_registry import Served
from distributed_input.sidecar.main import Sidecar

FOLDERS = [
    # folder, ring, socket and datasets
    (0o700, 0o600, 0o600),
    (0o755, 0o600, 0o600),
    (0o770, 0o640, 0o660),
    (0o2777, 0o644, 0o666),
]


@pytest.fixture(autouse=True)
def _strict_umask() -> Iterator[None]:
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize(("folder", "ring", "others"), FOLDERS)
def test_files_have_the_permissions_of_their_folder(
    tmp_path: Path, folder: int, ring: int, others: int
) -> None:
    tmp_path.chmod(folder)
    made = Ring(tmp_path / "ring", 4096)
    sidecar = Sidecar(Served(lambda name, job: pytest.fail(f"{name}{job}"), []), tmp_path, 0, 1)
    channel = Channel(tmp_path, 5.0)
    try:
        channel.write_file("dataset", b"rows")
        found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        channel.shutdown()
        sidecar.close()
        made.close()
    assert found == {"ring": ring, SOCKET_NAME: others, "dataset": others}
