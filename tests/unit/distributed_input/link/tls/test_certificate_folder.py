"""A folder with a certificate that is replaced while processes run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.identity import AUTHORITIES_FILE, CHAIN_FILE, KEY_FILE, SIDECAR, WORKER
from distributed_input.link.tls.certificate_folder import CertificateFolder
from testing.certificates import LIFE, MountedFolder, authority, now


class Story:
    """A folder, and a clock that the test sets."""

    def __init__(self, path: Path) -> None:
        self.seconds = 0.0
        self.mounted = MountedFolder(path)
        self.mounted.issue(WORKER)
        self.folder = CertificateFolder(path, lambda: self.seconds)
        self.first = self.folder.current()

    def later(self) -> object:
        self.seconds += 1.5
        return self.folder.current()


@pytest.fixture
def story(tmp_path: Path) -> Story:
    return Story(tmp_path)


def test_a_renewed_certificate_is_used(story: Story) -> None:
    story.mounted.issue(WORKER)
    assert story.folder.current() is story.first  # read at most once per second
    assert story.later() is not story.first


def test_an_unusable_certificate_does_not_replace_the_last_one(story: Story) -> None:
    story.mounted.issue(WORKER, at=now() - 2 * LIFE)
    assert story.later() is story.first
    one = authority()
    chain = one.issue(WORKER, now(), LIFE)
    story.mounted.write(chain, one.key(SIDECAR), one.certificate)
    assert story.later() is story.first
    story.mounted.write(chain, one.key(WORKER), one.certificate)
    assert story.later() is not story.first


def test_a_certificate_that_becomes_valid_is_used(
    story: Story, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine may be behind the operator's."""
    from distributed_input.link.tls import certificate_folder

    story.mounted.issue(WORKER, at=now() + timedelta(hours=2))
    assert story.later() is story.first
    valid = replace(story.first)  # the same files are accepted when the time has come
    monkeypatch.setattr(certificate_folder, "checked", lambda *parts: valid)
    assert story.later() is not story.first


@pytest.mark.parametrize("below", ["digits", "tls/digits"])
def test_files_of_a_subfolder_are_of_one_version_of_the_volume(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    """As in a projected volume: its link `..data` is above the folder, and the files are plain."""

    def mount(version: str, uid: str) -> None:
        one, folder = authority(uid), tmp_path / version / below
        folder.mkdir(parents=True)
        (folder / CHAIN_FILE).write_text(one.issue(WORKER, now(), LIFE))
        (folder / KEY_FILE).write_text(one.key(WORKER))
        (folder / AUTHORITIES_FILE).write_text(one.certificate)
        (tmp_path / "..new").symlink_to(version)
        (tmp_path / "..new").replace(tmp_path / "..data")

    def read_before_the_volume_changes(path: Path) -> bytes:
        monkeypatch.undo()
        content = path.read_bytes()
        mount("..2", "u-2")
        shutil.rmtree(tmp_path / "..1")
        return content

    mount("..1", "u-1")
    top = below.partition("/")[0]
    (tmp_path / top).symlink_to(f"..data/{top}")
    seconds = [0.0]
    folder = CertificateFolder(tmp_path / below, lambda: seconds[0])
    assert folder.current().own.uid == "u-1"
    monkeypatch.setattr(Path, "read_bytes", read_before_the_volume_changes)
    seconds[0] = 2.0
    assert folder.current().own.uid == "u-2"


def test_a_process_does_not_start_without_a_certificate(tmp_path: Path) -> None:
    mounted = MountedFolder(tmp_path)
    mounted.issue(WORKER, at=now() - 2 * LIFE)
    with pytest.raises(UnavailableError, match=r"expired.*operator runs"):
        CertificateFolder(tmp_path)
    mounted.issue(WORKER)
    (tmp_path / "..data" / KEY_FILE).unlink()
    with pytest.raises(UnavailableError, match="No such file"):
        CertificateFolder(tmp_path)


def test_a_missing_folder_does_not_stop_a_running_process(story: Story) -> None:
    shutil.rmtree(story.mounted.path)
    assert story.later() is story.first


def test_plain_files_are_read_too(tmp_path: Path) -> None:
    mounted = MountedFolder(tmp_path / "mounted").issue(WORKER)
    shutil.copytree((mounted / "..data").resolve(), tmp_path / "plain")
    assert CertificateFolder(tmp_path / "plain").current().own.role == WORKER
