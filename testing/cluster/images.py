"""The project's images, built from its Dockerfile without Docker, and kept by their contents.

There is no registry: an image is an archive, which a node imports.
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

TARGETS = ("operator", "sidecar", "worker")
"""Of the Dockerfile."""
_ROOT = Path(__file__).parents[2]
_COMMON = (
    *("Dockerfile", ".dockerignore", "pyproject.toml", "uv.lock"),
    *("operator/pyproject.toml", "sidecar/pyproject.toml", "sidecar/src"),
)
_SOURCES = {"operator": (*_COMMON, "operator/src"), "sidecar": _COMMON, "worker": _COMMON}
_DIGITS = tuple(f"examples/digits/{one}" for one in ("Dockerfile", "digits.py", "train.py"))
_SUITE = "bookworm"
_INCLUDE = "python3,python3-venv,ca-certificates"
# Behind a proxy that signs anew, only this machine's own list knows the signer.
_TRUSTED = Path("/etc/ssl/certs/ca-certificates.crt")
# A gigabyte or two each: this checkout's, and another's.
_KEPT = 2
_SECONDS = 30 * 60.0


@dataclass(frozen=True)
class Image:
    """An image's name, and the archive that brings it to a node."""

    name: str
    archive: Path


def image(target: str) -> Image:
    """An image of this checkout, built where there is none of the same contents.

    Raises packages.Missing where this machine cannot build, subprocess.CalledProcessError, with the
    build's output on stderr, where the build fails.
    """
    packages.require(packages.IMAGES)
    base = _base()
    name = f"localhost/distributed-input-{target}:{_key(base, *_contents(*_SOURCES[target]))}"
    with lock("images"):
        made = _archive(name)
        if not made.archive.exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            build = ["bud", "--quiet", "--isolation=chroot", "--layers", f"--target={target}"]
            _buildah(*build, f"--build-arg=BASE_IMAGE={base}", f"--tag={name}", str(_ROOT))
            _push(made)
            _forget_older(target)
    return made


def digits() -> Image:
    """The image of examples/digits, for its workers and trainers both; as `image`."""
    worker = image("worker")
    name = f"localhost/distributed-input-digits:{_key(worker.name, *_contents(*_DIGITS))}"
    with lock("images"), tempfile.TemporaryDirectory() as context:
        made = _archive(name)
        if not made.archive.exists():
            print(f"building {name}", file=sys.stderr, flush=True)
            # As its README says; in a folder of its own, for the checkout's may hold anything.
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
            _push(made)
            _forget_older("digits")
    return made


def pause() -> Image:
    """What holds a pod's namespaces: it only has to sleep."""
    base = _base()
    made = _archive(base.replace("-base:", "-pause:"))
    with lock("images"):
        if not made.archive.exists():
            _commit(base, made.name, "--entrypoint", '["/bin/sleep", "infinity"]')
            _push(made)
    return made


def _base() -> str:
    """The name of a Debian with Python, in buildah's store."""
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


def _push(made: Image) -> None:
    # Whole or not at all: an archive that is there is taken for complete.
    new = made.archive.with_suffix(".new")
    new.unlink(missing_ok=True)
    _buildah("push", "--quiet", made.name, f"docker-archive:{new}:{made.name}")
    new.rename(made.archive)


def _archive(name: str) -> Image:
    folder = cache_dir() / "images"
    folder.mkdir(parents=True, exist_ok=True)
    return Image(name, folder / f"{name.rpartition('/')[2].replace(':', '-')}.tar")


def _forget_older(target: str) -> None:
    found = (cache_dir() / "images").glob(f"distributed-input-{target}-*.tar")
    for archive in sorted(found, key=lambda path: path.stat().st_mtime)[:-_KEPT]:
        archive.unlink()
        key = archive.stem.rpartition("-")[2]
        _buildah("rmi", "--force", f"localhost/distributed-input-{target}:{key}")


def _contents(*sources: str) -> Iterable[str | bytes]:
    for source in sources:
        path = _ROOT / source
        files = [path] if path.is_file() else sorted(path.rglob("*"))
        for file in files:
            if file.is_file() and "__pycache__" not in file.parts:
                yield str(file.relative_to(_ROOT))
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
