"""Files shared by sidecar and trainer: as open as their folder, and not more."""

from __future__ import annotations

import os

import pytest

from distributed_input.api.files import SOCKET_NAME
from distributed_input.link.trainer.trainer_end import Channel
from distributed_input.sidecar.delivery.slot_pool import SlotPool
from distributed_input.sidecar.inputs.registry import InputRegistry
from distributed_input.sidecar.server import SidecarServer

FOLDERS = [
    # folder, files
    (0o700, 0o600),
    (0o755, 0o600),
    (0o770, 0o660),
    (0o2777, 0o666),
]


@pytest.fixture(autouse=True)
def _strict_umask():
    before = os.umask(0o077)
    yield
    os.umask(before)


@pytest.mark.parametrize(("folder", "files"), FOLDERS)
def test_files_are_as_open_as_their_folder(tmp_path, folder, files):
    tmp_path.chmod(folder)
    made = SlotPool(tmp_path / "ring", 4096)
    registry = InputRegistry(lambda *_: pytest.fail("no job"), [])
    sidecar = SidecarServer(registry, tmp_path)
    channel = Channel(tmp_path, 5.0)
    try:
        channel.write_file("dataset", b"rows")
        found = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    finally:
        channel.shutdown()
        sidecar.close()
        made.close()
    assert found == {"ring": files, SOCKET_NAME: files, "dataset": files}
