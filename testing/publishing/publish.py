"""Signs and publishes the artefacts of a release, after it checked what a release needs."""

from __future__ import annotations

import hashlib
import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testing.cluster.binaries import binary
from testing.publishing.artifacts import CHART, ROOT, distributions, files, uv

CHECKSUMS = "SHA256SUMS"
_DIGEST = re.compile(r"sha256:[0-9a-f]{64}")


@dataclass(frozen=True)
class Targets:
    """Where a release goes. "": not given."""

    registry: str
    """Registry of images and charts, such as `registry.example/team`."""
    index_url: str
    """Upload URL of a package index."""
    download_url: str = ""
    """URL of the folder that gets all files of the release, for the manifest of the plugin."""

    @property
    def charts(self) -> str:
        """Return the repository of the charts, without `oci://`."""
        return f"{self.registry}/charts"


def unready(version: str, targets: Targets, root: Path = ROOT) -> list[str]:
    """Return one line for each reason not to publish, with its remedy."""
    reasons = [*_changelog_problems(version, root), *_git_problems(version, root)]
    if not targets.registry:
        reasons.append("no registry: set REGISTRY=registry.example/team")
    if not targets.index_url:
        reasons.append("no package index: set INDEX_URL to its upload URL")
    if not targets.download_url:
        reasons.append("no downloads: set DOWNLOAD_URL to the folder that gets the release's files")
    if not shutil.which("cosign"):
        reasons.append("cosign is not in the path: install it, it signs the artefacts")
    return reasons


def publish(dist: Path, targets: Targets, dry_run: bool = False) -> None:
    """Sign the artefacts of a folder and publish them. If a command fails, stop.

    A second call completes an interrupted one, if the index accepts equal files again or
    UV_PUBLISH_CHECK_URL is set: builds of a commit have equal wheels and sdists.

    Args:
        dist: folder of `artifacts.files`.
        targets: where to publish.
        dry_run: only print the commands.

    Raises:
        subprocess.CalledProcessError: a command failed. Its output was printed.
    """
    (chart,) = (path for path in files(dist) if path.suffix == ".tgz")
    checksums = dist / CHECKSUMS
    lines = [f"{hashlib.sha256(one.read_bytes()).hexdigest()}  {one.name}\n" for one in files(dist)]
    checksums.write_text("".join(lines))
    bundle = f"{checksums}.sigstore.json"
    # The signature comes first: nothing without one is published.
    _run(dry_run, "cosign", "sign-blob", "--yes", "--bundle", bundle, checksums)
    _run(dry_run, uv(), "publish", "--publish-url", targets.index_url, *distributions(dist))
    repository = f"oci://{targets.charts}"
    pushed = _run(dry_run, binary("helm"), "push", chart, repository, *_plain_http(targets))
    found = _DIGEST.search(pushed)
    digest = found[0] if found else "DIGEST"
    _run(dry_run, "cosign", "sign", "--yes", f"{targets.charts}/{CHART}@{digest}")


def _run(dry_run: bool, *command: str | Path) -> str:
    """Print a command, run it and return its output. With `dry_run`, only print it."""
    print(shlex.join(map(str, command)), flush=True)
    if dry_run:
        return ""
    done = subprocess.run(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
    print(done.stdout, end="", flush=True)
    done.check_returncode()
    return done.stdout


def _plain_http(targets: Targets) -> tuple[str, ...]:
    """Return helm's flag for a registry on this machine, which has no certificate."""
    return ("--plain-http",) if targets.registry.startswith("127.0.0.1:") else ()


def _changelog_problems(version: str, root: Path) -> Iterator[str]:
    text = (root / "CHANGELOG.md").read_text()
    if not re.search(rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$", text, re.MULTILINE):
        yield f"CHANGELOG.md: has no heading `## [{version}] - YYYY-MM-DD`: add it"
    unreleased = re.search(r"^## \[Unreleased\]\n(.*?)^## ", text, re.MULTILINE | re.DOTALL)
    if unreleased and unreleased[1].strip():
        yield f"CHANGELOG.md: [Unreleased] has entries: move them to [{version}]"


def _git_problems(version: str, root: Path) -> Iterator[str]:
    if _git(root, "status", "--porcelain"):
        yield "the checkout has changes: commit or remove them"
    if f"v{version}" not in _git(root, "tag", "--points-at", "HEAD").split():
        yield f"the commit has no tag v{version}. Run: git tag v{version}"


def _git(root: Path, *command: str) -> str:
    done = subprocess.run(("git", "-C", root, *command), capture_output=True, text=True, check=True)
    return done.stdout
