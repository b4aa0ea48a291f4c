"""Builds the project's images from its Dockerfile without Docker, and caches them by contents.

There is no registry: an image is an archive that a node imports.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from testing import examples
from testing.cluster import packages
from testing.cluster.binaries import cache_dir, lock
from testing.releases.sources import extract

TARGETS = ("operator", "sidecar", "worker")
"""Targets of the Dockerfile."""
_ROOT = Path(__file__).parents[2]
_COMMON = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "uv.lock"),
    *("LICENSE", "operator/pyproject.toml", "sidecar/pyproject.toml"),
    *("sidecar/README.md", "sidecar/native", "sidecar/src"),
)
_SOURCES = {
    "operator": (*_COMMON, "operator/README.md", "operator/src"),
    "sidecar": _COMMON,
    "worker": _COMMON,
}
_DIGITS = tuple(f"examples/digits/{one}" for one in ("Dockerfile", "digits.py", "train.py"))
PYTHON = (3, 11)
"""The version of Python in the images: that of the suite."""
_SUITE = "bookworm"
_INCLUDE = "python3,python3-venv,ca-certificates"
# Behind a TLS-intercepting proxy, only this machine's list has the proxy's authority.
_TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
# One or two GB each: this checkout's image and another one.
_MAX_ARCHIVES = 2
_SECONDS = 30 * 60.0


@dataclass(frozen=True)
class Image:
    """An image's name and the archive that a node imports."""

    name: str
    archive: Path


def image(target: str) -> Image:
    """Return an image of this checkout. Build it if none has the same contents.

    Raises:
        packages.MissingRequirement: this machine cannot build images.
        subprocess.CalledProcessError: the build failed. Its output is on stderr.
    """
    return _image(target, target, _ROOT)


def previous_image(target: str) -> Image:
    """Return an image of the previous commit, like `image`."""
    with tempfile.TemporaryDirectory() as folder:
        extract(Path(folder))
        return _image(f"{target}-previous", target, Path(folder))


def _image(repository: str, target: str, root: Path) -> Image:
    packages.require(packages.IMAGES)
    base = _base()
    key = _key(base, *_contents(*_SOURCES[target], root=root))
    name = f"localhost/distributed-input-{repository}:{key}"
    with lock("images"):
        target_image = _archive(name)
        if not target_image.archive.exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            build = ["bud", "--quiet", "--isolation=chroot", "--layers", f"--target={target}"]
            _buildah(*build, f"--build-arg=BASE_IMAGE={base}", f"--tag={name}", str(root))
            _push(target_image)
            _remove_older(repository)
    return target_image


def digits() -> Image:
    """Return the image of examples/digits, for its workers and trainers, like `image`."""
    worker = image("worker")
    name = f"localhost/distributed-input-digits:{_key(worker.name, *_contents(*_DIGITS))}"
    with lock("images"), tempfile.TemporaryDirectory() as context:
        target_image = _archive(name)
        if not target_image.archive.exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            # As in the example's README, but in a clean folder: the checkout may have others.
            folder = Path(context) / "digits"
            folder.mkdir()
            for file in _DIGITS:
                shutil.copy(_ROOT / file, folder)
            subprocess.run(
                [examples.PYTHON, folder / "digits.py", folder / "data"],
                check=True,
                timeout=_SECONDS,
            )
            build = ["bud", "--quiet", "--isolation=chroot", f"--tag={name}"]
            _buildah(*build, f"--build-arg=WORKER_IMAGE={worker.name}", str(folder))
            _push(target_image)
            _remove_older("digits")
    return target_image


def pause() -> Image:
    """Return the image of the container that holds a pod's namespaces. It only sleeps."""
    base = _base()
    target_image = _archive(base.replace("-base:", "-pause:"))
    with lock("images"):
        if not target_image.archive.exists():
            _commit(base, target_image.name, "--entrypoint", '["/bin/sleep", "infinity"]')
            _push(target_image)
    return target_image


def _base() -> str:
    """Return the name of a Debian image with Python in buildah's store. Build it if missing."""
    packages.require(packages.IMAGES)
    key = _key(_SUITE, _INCLUDE, _TRUSTED.read_bytes())
    name = f"localhost/distributed-input-base:{key}"
    with lock("images"):
        if not _buildah("images", "--quiet", "--filter", f"reference={name}"):
            print(f"building {name}", file=sys.stderr, flush=True)
            with tempfile.TemporaryDirectory() as folder:
                tar = Path(folder) / "base.tar"
                subprocess.run(
                    [
                        *("mmdebstrap", "--quiet", "--variant=minbase"),
                        *(f"--include={_INCLUDE}", _SUITE, tar),
                    ],
                    check=True,
                    timeout=_SECONDS,
                )
                _commit(
                    *("scratch", name, "--env", f"SSL_CERT_FILE={_TRUSTED}"),
                    *("--env", f"PIP_CERT={_TRUSTED}"),
                    add=((tar, Path("/")), (_TRUSTED, _TRUSTED)),
                )
    return name


def _commit(base: str, name: str, *configured: str, add: Iterable[tuple[Path, Path]] = ()) -> None:
    container = _buildah("from", base)
    try:
        for source, target in add:
            _buildah("add", "--quiet", container, str(source), str(target))
        _buildah("config", *configured, container)
        _buildah("commit", "--quiet", container, name)
    finally:
        _buildah("rm", container)


def _push(target_image: Image) -> None:
    # Write the archive atomically: an existing archive is assumed to be complete.
    temporary = target_image.archive.with_suffix(".new")
    temporary.unlink(missing_ok=True)
    _buildah(
        "push", "--quiet", target_image.name, f"docker-archive:{temporary}:{target_image.name}"
    )
    temporary.rename(target_image.archive)


def _archive(name: str) -> Image:
    folder = cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return Image(name, folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar")


def _remove_older(target: str) -> None:
    # The key has 12 characters. Another repository's name may begin with this one.
    found = (cache_dir() / "images").glob(f"distributed-input-{target}-{'?' * 12}.tar")
    for archive in sorted(found, key=lambda path: path.stat().st_mtime)[:-_MAX_ARCHIVES]:
        archive.unlink()
        key = archive.stem.rpartition("-")[2]
        _buildah("rmi", "--force", f"localhost/distributed-input-{target}:{key}")


def _contents(*sources: str, root: Path = _ROOT) -> Iterable[str | bytes]:
    for source in sources:
        path = root / source
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(root))
                yield file.read_bytes()


def _key(*parts: str | bytes) -> str:
    digest = hashlib.sha256()
    for part in parts:
        content = part.encode() if isinstance(part, str) else part
        digest.update(len(content).to_bytes(8, "big") + content)
    return digest.hexdigest()[:12]


def _buildah(*command: str) -> str:
    store = cache_dir() / "buildah"
    done = subprocess.run(
        ["buildah", f"--root={store}", f"--runroot={store}-run", *command],
        stdout=subprocess.PIPE,
        text=True,
        check=True,
        timeout=_SECONDS,
    )
    return done.stdout.strip()
