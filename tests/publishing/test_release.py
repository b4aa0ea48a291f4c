"""A release, from its version to servers on this machine and back."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from testing.charts.rendering import helm
from testing.publishing import artifacts, environments, publish, servers, version
from testing.publishing.publish import Targets

NEXT = "9.8.7"
TARGETS = Targets(
    "registry.example/team", "https://index.example/upload", "https://downloads.example/9.8.7"
)
CHANGELOG = f"# Changelog\n\n## [Unreleased]\n\n## [{NEXT}] - 2031-02-03\n\n- Some change.\n"


def git(root: Path, *command: str) -> None:
    identity = ("-c", "user.name=some", "-c", "user.email=some@example.com")
    subprocess.run(("git", "-C", root, *identity, *command), check=True, capture_output=True)


def test_all_files_have_one_version() -> None:
    assert version.problems(version.current()) == []


@pytest.mark.parametrize("wrong", ["1.2rc1", "1.2.3-dev.0", "1.2.3.dev", "v1.2.3"])
def test_a_version_is_three_numbers_or_their_development(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"VERSION={re.escape(wrong)}: must be three numbers"):
        version.write(wrong)


@pytest.mark.parametrize(
    ("given", "chart"), [("9.8.7", "9.8.7"), ("9.8.7.dev6", "9.8.7-dev.6"), ("10.0.0", "10.0.0")]
)
def test_python_and_chart_spell_a_development_version_differently(
    given: str, chart: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for file in version._PLACES:
        (tmp_path / file).parent.mkdir(parents=True)
        shutil.copy(artifacts.ROOT / file, tmp_path / file)
    monkeypatch.setattr(version, "uv", lambda _: "true")
    version.write(given, tmp_path)
    assert version.problems(given, tmp_path) == []
    assert version.current(tmp_path) == given
    text = (tmp_path / "charts/distributed-input/Chart.yaml").read_text()
    assert f"\nversion: {chart}\nappVersion: {chart}\n" in text
    assert f'"distributed-input~={given}"' in (tmp_path / "operator/pyproject.toml").read_text()
    assert len(version.problems("1.1.1", tmp_path)) == 5


@pytest.fixture
def ready(tmp_path: Path, cosign: Path) -> Path:
    """Return a repository whose commit can be published."""
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    git(tmp_path, "init", "--quiet")
    commit(tmp_path)
    return tmp_path


def commit(root: Path) -> None:
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "some")
    git(root, "tag", "--force", f"v{NEXT}")


def test_a_release_is_ready(ready: Path) -> None:
    assert publish.unready(NEXT, TARGETS, ready) == []
    reasons = publish.unready(f"{NEXT}.dev0", TARGETS, ready)
    assert any("no heading" in reason for reason in reasons), "a development version is not"


@pytest.mark.parametrize(
    ("text", "replacement", "reason"),
    [
        ("2031-02-03", "soon", f"CHANGELOG.md: has no heading `## [{NEXT}] - "),
        (
            "[Unreleased]\n",
            "[Unreleased]\n\n- Another change.\n",
            "CHANGELOG.md: [Unreleased] has entries",
        ),
    ],
)
def test_the_changelog_has_a_heading_with_a_date_and_nothing_unreleased(
    ready: Path, text: str, replacement: str, reason: str
) -> None:
    (ready / "CHANGELOG.md").write_text(CHANGELOG.replace(text, replacement))
    commit(ready)
    (found,) = publish.unready(NEXT, TARGETS, ready)
    assert found.startswith(reason)


def test_the_commit_has_a_tag_and_every_change(ready: Path) -> None:
    git(ready, "tag", "--delete", f"v{NEXT}")
    (reason,) = publish.unready(NEXT, TARGETS, ready)
    assert reason == f"the commit has no tag v{NEXT}. Run: git tag v{NEXT}"
    git(ready, "tag", f"v{NEXT}")
    (ready / "new").touch()
    (reason,) = publish.unready(NEXT, TARGETS, ready)
    assert reason.startswith("the checkout has changes")


def test_targets_and_signatures_are_required(ready: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("testing.publishing.publish.shutil.which", lambda name: None)
    reasons = publish.unready(NEXT, Targets("", ""), ready)
    assert [one.split()[:2] for one in reasons] == [
        ["no", "registry:"],
        ["no", "package"],
        ["no", "downloads:"],
        ["cosign", "is"],
    ]


@pytest.fixture
def cosign(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Put a program before cosign in the path: signing needs an identity of the public forge.

    It appends its arguments to the file `calls` in the returned folder. If the folder has the file
    `fail`, it fails.
    """
    folder = tmp_path_factory.mktemp("cosign")
    program = folder / "cosign"
    program.write_text(f'#!/bin/sh\necho "$@" >>"{folder}/calls"\n! test -e "{folder}/fail"\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}{os.pathsep}{os.environ['PATH']}")
    return folder


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a repository with this checkout's files as release NEXT, tagged."""
    root = tmp_path_factory.mktemp("release")
    command = ("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
    listed = subprocess.run(command, cwd=artifacts.ROOT, capture_output=True, check=True)
    for name in filter(None, listed.stdout.decode().split("\0")):
        if (source := artifacts.ROOT / name).exists():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, root / name, follow_symlinks=False)
    assert release(root, "version").returncode == 0
    (root / "CHANGELOG.md").write_text(CHANGELOG)
    git(root, "init", "--quiet")
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "some")
    git(root, "tag", f"v{NEXT}")
    return root


def release(
    root: Path, step: str, *flags: str, version: str = NEXT
) -> subprocess.CompletedProcess[str]:
    """Run a step of a release with the code of a repository."""
    command = (sys.executable, "-m", "testing.publishing", step, version, *flags)
    return subprocess.run(
        # The index needs no token. Without one, uv asks for it.
        command,
        cwd=root,
        env={**os.environ, "UV_PUBLISH_TOKEN": "some"},
        capture_output=True,
        text=True,
    )


@pytest.fixture
def index(tmp_path: Path) -> Iterator[tuple[Path, str]]:
    """Serve an empty package index. Yield its folder and URL."""
    folder = tmp_path / "index"
    folder.mkdir()
    with servers.package_index(folder) as url:
        yield folder, url


def test_a_published_release_can_be_installed(
    checkout: Path,
    cosign: Path,
    index: tuple[Path, str],
    control_plane,
    namespace: str,
    tmp_path: Path,
) -> None:
    folder, url = index
    with servers.oci_registry() as host:
        registry = f"{host}/team"
        downloads = ("--download-url", "https://downloads.example/release")
        flags = ("--registry", registry, "--index-url", url, *downloads)
        built = release(checkout, "build", *flags)
        assert built.returncode == 0, built.stderr

        tried = release(checkout, "publish", *flags)
        assert "Nothing was published" in tried.stdout, tried.stderr
        assert "not ready" not in tried.stdout
        assert [list(folder.iterdir()), (cosign / "calls").exists()] == [[], False]

        (cosign / "fail").touch()
        assert release(checkout, "publish", *flags, "--publish").returncode == 1
        assert list(folder.iterdir()) == []

        (cosign / "fail").unlink()
        published = release(checkout, "publish", *flags, "--publish")
        assert published.returncode == 0, published.stdout + published.stderr
        *_, blob, chart = (cosign / "calls").read_text().splitlines()
        assert blob.endswith("dist/SHA256SUMS")
        assert f" {registry}/charts/distributed-input@sha256:" in chart

        env = environments.create(tmp_path / "env", url, Path(sys.executable))
        env.install("distributed-input-operator")
        shown = env.run("distributed-input", "--version", cwd=tmp_path)
        assert shown.stdout == f"distributed-input {NEXT}\n", shown.stderr

        source = (f"oci://{registry}/charts/distributed-input", "--plain-http", "--version", NEXT)
        where = ("--namespace", namespace, "--kubeconfig", control_plane.kubeconfig)
        # Other tests share the cluster and its definitions.
        installed = helm("install", "some", *source, *where, "--set", "crds.enabled=false")
        assert installed.returncode == 0, installed.stderr
        try:
            manifest = helm("get", "manifest", "some", *where).stdout
            for image in artifacts.IMAGES:
                assert f"{registry}/{image}:{NEXT}" in manifest
        finally:
            assert helm("uninstall", "some", *where).returncode == 0


def test_another_version_than_the_checkouts_is_refused(checkout: Path) -> None:
    built = release(checkout, "build", version="9.8.8")
    assert built.returncode == 2
    assert built.stderr.count(f"has version {NEXT}. Run: make version VERSION=9.8.8") == 5
