"""Control planes of other Kubernetes versions, from a Go module that this program generates.

Kubernetes pins all its dependencies in its own go.mod, but it replaces its libraries (`k8s.io/api`
and others) by folders that its module does not contain. The generated go.mod replaces them by their
releases: v0.29.15 for Kubernetes v1.29.15. So each version has only one build, and go.sum need not
be in this repository: Go verifies each module with Kubernetes' own go.sum, and the libraries with
Go's checksum database.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

from testing.cluster import binaries

NAMES = ("kube-apiserver", "kube-controller-manager", "kube-scheduler")
_MODULE = "k8s.io/kubernetes"
_DOWNLOAD_SECONDS = 10 * 60.0
_BUILD_SECONDS = 90 * 60.0


def build(version: str) -> Path:
    """Return the folder with the control plane of a version. Build it if it is missing.

    The cache key contains this file, so that a change of it causes a new build.

    version: without "v", such as 1.29.15.
    Raises subprocess.CalledProcessError if the build fails. Go prints the reason on stderr.
    """
    name = f"control-plane-v{version}"
    key = hashlib.sha256(Path(__file__).read_bytes() + _flags(version).encode()).hexdigest()[:12]
    target = binaries.cache_dir() / "bin" / f"{name}-{key}"
    return binaries.create_once(target, f"build-{name}", lambda new: _compile(version, new))


def generate(version: str, go_mod: str) -> str:
    """Return the go.mod of a module that can build a version.

    go_mod: the go.mod of Kubernetes itself.
    """
    library = f"v0.{version.partition('.')[2]}"
    text = re.sub(
        rf"^module {_MODULE}$", "module distributed-input.dev/control-plane", go_mod, flags=re.M
    )
    text, replaced = re.subn(r"=> \./staging/src/(\S+)", rf"=> \1 {library}", text)
    if not replaced:
        raise ValueError(f"The go.mod of Kubernetes {version} replaces no library by a folder")
    return f"{text}\nrequire {_MODULE} v{version}\n"


def _flags(version: str) -> str:
    return binaries.kubernetes_linker_flags(f"v{version}")


def _compile(version: str, target: Path) -> None:
    print(f"building the control plane of Kubernetes {version} (once)", file=sys.stderr, flush=True)
    source, module = _download(version), target / "module"
    module.mkdir(parents=True)
    (module / "go.mod").write_text(generate(version, (source / "go.mod").read_text()))
    shutil.copyfile(source / "go.sum", module / "go.sum")
    packages = [f"{_MODULE}/cmd/{name}" for name in NAMES]
    subprocess.run(
        # -mod=mod: Go adds the checksums of the libraries to go.sum.
        # providerless: without the clients of clouds that versions before 1.31 contain.
        [
            *("nice", "-n", "19", binaries.go(), "build", "-mod=mod", "-tags=providerless"),
            "-trimpath",
            *("-ldflags", _flags(version), "-o", f"{target}/", *packages),
        ],
        cwd=module,
        env=_environment(),
        stdout=sys.stderr,
        check=True,
        timeout=_BUILD_SECONDS,
    )


def _download(version: str) -> Path:
    """Return the folder with the sources of Kubernetes, in Go's cache of modules."""
    result = subprocess.run(
        [binaries.go(), "mod", "download", "-json", f"{_MODULE}@v{version}"],
        # Outside of every module.
        cwd="/",
        env=_environment(),
        stdout=subprocess.PIPE,
        text=True,
        timeout=_DOWNLOAD_SECONDS,
    )
    found: dict[str, Any] = json.loads(result.stdout or "{}")
    if result.returncode or "Dir" not in found:
        raise RuntimeError(f"cannot download Kubernetes {version}: {found.get('Error', '')}")
    return Path(found["Dir"])


def _environment() -> dict[str, str]:
    return {**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"}
