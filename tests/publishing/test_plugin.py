"""The kubectl plugin as krew installs it, with a real kubectl. krew itself is not run."""

from __future__ import annotations

import hashlib
import os
import stat
import subprocess
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.cluster.binaries import binary
from testing.publishing import krew, version


@pytest.fixture
def manifest(dist: Path) -> dict[str, Any]:
    """Return the manifest of the plugin."""
    found: dict[str, Any] = yaml.safe_load((dist / krew.MANIFEST).read_text())
    return found


@pytest.fixture
def bin_folder(dist: Path, manifest: dict[str, Any], tmp_path: Path) -> Path:
    """Return a folder for the path, with the plugin as krew puts it there."""
    (platform,) = manifest["spec"]["platforms"]
    folder, _, name = platform["uri"].rpartition("/")
    assert folder == "https://downloads.example/release"
    archive = dist / name
    assert hashlib.sha256(archive.read_bytes()).hexdigest() == platform["sha256"]
    with zipfile.ZipFile(archive) as file:
        for info in file.infolist():
            file.extract(info, tmp_path)
            (tmp_path / info.filename).chmod(stat.S_IMODE(info.external_attr >> 16))
        assert {info.filename for info in file.infolist()} == {platform["bin"], "LICENSE"}
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / f"kubectl-{manifest['metadata']['name']}").symlink_to(tmp_path / platform["bin"])
    return folder


def kubectl(path: str, *words: str) -> subprocess.CompletedProcess[str]:
    command = (str(binary("kubectl")), "dinput", *words)
    return subprocess.run(command, env={"PATH": path}, capture_output=True, text=True)


def test_krew_accepts_the_manifest(manifest: dict[str, Any]) -> None:
    assert krew.problems(manifest) == []
    assert manifest["spec"]["version"] == f"v{version.semantic(version.current())}"


@pytest.mark.parametrize(
    ("field", "value"), [("version", "1.2"), ("shortDescription", "two\nlines"), ("platforms", [])]
)
def test_what_krew_refuses_is_found(manifest: dict[str, Any], field: str, value: object) -> None:
    manifest["spec"][field] = value
    assert krew.problems(manifest) == [field]


@pytest.mark.parametrize("field", ["uri", "sha256", "bin", "selector"])
def test_a_platform_is_complete(manifest: dict[str, Any], field: str) -> None:
    del manifest["spec"]["platforms"][0][field]
    assert krew.problems(manifest) == [field]


def test_kubectl_runs_the_command(bin_folder: Path) -> None:
    (bin_folder / "distributed-input").write_text('#!/bin/sh\necho "given: $*"\nexit 3\n')
    (bin_folder / "distributed-input").chmod(0o755)
    done = kubectl(f"{bin_folder}{os.pathsep}/usr/bin:/bin", "explain", "digits", "-n", "team")
    assert (done.stdout, done.returncode) == ("given: explain digits -n team\n", 3)


def test_without_the_command_the_plugin_says_what_to_install(bin_folder: Path) -> None:
    done = kubectl(f"{bin_folder}{os.pathsep}/usr/bin:/bin", "explain")
    assert done.returncode == 127
    assert "pip install distributed-input" in done.stderr
