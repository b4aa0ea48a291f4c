"""A folder with a certificate that is replaced while processes run."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from distributed_input.api.errors import UnavailableError
from distributed_input.api.identity import KEY_FILE, SIDECAR, WORKER
from distributed_input.runtime.tls.certificate_folder import CertificateFolder
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


def test_the_same_certificate_stays_the_same_object(story: Story) -> None:
    assert story.later() is story.first


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
    from distributed_input.runtime.tls import certificate_folder

    story.mounted.issue(WORKER, at=now() + timedelta(hours=2))
    assert story.later() is story.first
    valid = replace(story.first)  # the same files are accepted when the time has come
    monkeypatch.setattr(certificate_folder, "checked", lambda *parts: valid)
    assert story.later() is not story.first


def test_a_missing_folder_does_not_stop_a_running_process(story: Story) -> None:
    shutil.rmtree(story.mounted.path)
    assert story.later() is story.first


def test_files_may_be_in_a_subfolder_of_the_volume(tmp_path: Path) -> None:
    """As in a projected volume with the certificates of several inputs."""
    inside = MountedFolder(tmp_path / "..1" / "digits")
    inside.issue(WORKER)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "digits").symlink_to("..data/digits")
    seconds = [0.0]
    folder = CertificateFolder(tmp_path / "digits", lambda: seconds[0])
    first = folder.current()
    MountedFolder(tmp_path / "..2" / "digits").issue(WORKER)
    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    seconds[0] = 2.0
    assert folder.current() is not first


def test_plain_files_are_read_too(tmp_path: Path) -> None:
    mounted = MountedFolder(tmp_path / "mounted").issue(WORKER)
    shutil.copytree((mounted / "..data").resolve(), tmp_path / "plain")
    assert CertificateFolder(tmp_path / "plain").current().own.role == WORKER


def test_a_process_does_not_start_without_a_certificate(tmp_path: Path) -> None:
    mounted = MountedFolder(tmp_path)
    mounted.issue(WORKER, at=now() - 2 * LIFE)
    with pytest.raises(UnavailableError, match=r"expired.*operator runs"):
        CertificateFolder(tmp_path)
    mounted.issue(WORKER)
    (tmp_path / "..data" / KEY_FILE).unlink()
    with pytest.raises(UnavailableError, match="No such file"):
        CertificateFolder(tmp_path)
