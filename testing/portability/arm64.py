"""Tests of the native ops on arm64, under emulation: `make arm64` (root, Debian).

Builds the library with a cross-compiler, unpacks Python of Debian for arm64 and TensorFlow's wheel,
and runs the tests of the ops with QEMU. Nothing is installed but the compiler and QEMU.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from testing.publishing.artifacts import ARM64_COMPILER, ROOT, uv

_TOOLS = {ARM64_COMPILER: "g++-aarch64-linux-gnu", "qemu-aarch64": "qemu-user"}
_DEBIAN = (
    "libc6 libgcc-s1 libstdc++6 zlib1g libexpat1 libssl3 libffi8 libbz2-1.0 liblzma5 libsqlite3-0"
    " libuuid1 libcrypt1 libpython3.11-minimal libpython3.11-stdlib python3.11-minimal"
).split()
_PACKAGES = (
    "xxhash pytest pytest-timeout hypothesis grpcio-health-checking grpcio-reflection".split()
)
_TESTS = ROOT / "tests/unit/distributed_input/graph/test_native_ops.py"


def main() -> int:
    """Return the exit status of the tests. Arguments: versions of TensorFlow."""
    for program, package in _TOOLS.items():
        if not shutil.which(program):
            subprocess.run(("apt-get", "install", "--yes", "--quiet=2", package), check=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        _unpack_debian(folder)
        sources = folder / "sidecar"
        shutil.copytree(ROOT / "sidecar", sources)
        env = {**os.environ, "CXX": ARM64_COMPILER, "DISTRIBUTED_INPUT_MACHINE": "aarch64"}
        subprocess.run((sys.executable, "native/backend.py"), cwd=sources, env=env, check=True)
        shutil.copy(_TESTS, folder)
        return max(_test(folder, version) for version in sys.argv[1:] or ["2.21.0"])


def _unpack_debian(folder: Path) -> None:
    """Unpack packages for arm64, with lists of their own: those of this machine stay."""
    lists = folder / "lists"
    for part in ("state/lists/partial", "cache/archives/partial", "debs"):
        (lists / part).mkdir(parents=True)
    (lists / "status").touch()
    options = {
        "APT::Architecture": "arm64",
        "APT::Architectures": "arm64",
        "APT::Sandbox::User": "root",
        "Dir::State": lists / "state",
        "Dir::State::status": lists / "status",
        "Dir::Cache": lists / "cache",
    }
    apt = ["apt-get", "--quiet=2", *(f"--option={key}={value}" for key, value in options.items())]
    subprocess.run((*apt, "update"), check=True)
    subprocess.run((*apt, "download", *_DEBIAN), cwd=lists / "debs", check=True)
    for deb in sorted((lists / "debs").iterdir()):
        subprocess.run(("dpkg-deb", "--extract", deb, folder / "root"), check=True)


def _test(folder: Path, version: str) -> int:
    site = folder / f"tensorflow-{version}"
    install = (uv(), "pip", "install", "--quiet", "--only-binary", ":all:", "--target", site)
    platform = ("--python-platform", "aarch64-manylinux_2_28", "--python-version", "3.11")
    subprocess.run((*install, *platform, f"tensorflow=={version}", *_PACKAGES), check=True)
    env = {
        **os.environ,
        "PYTHONHOME": str(folder / "root/usr"),
        "PYTHONPATH": f"{folder / 'sidecar/src'}:{site}",
    }
    python = ("qemu-aarch64", "-L", folder / "root", folder / "root/usr/bin/python3.11")
    tests = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "--timeout=3600", _TESTS.name)
    print(f"TensorFlow {version} on arm64", flush=True)
    return subprocess.run((*python, *tests), cwd=folder, env=env).returncode


if __name__ == "__main__":
    sys.exit(main())
