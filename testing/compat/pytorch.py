"""A Python with PyTorch: this one, or one with Debian's package.

PyPI's PyTorch includes CUDA, several GB. Debian's is for CPUs only, about 125 MB with its
dependencies, and was built for numpy 1. It is therefore unpacked into the cache, and a separate
environment has numpy 1 and the dependencies of `distributed_input`.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

from testing.cluster.binaries import cache_dir, create_once
from testing.cluster.debian import AptMissingError, run, unpack

_PACKAGE = "python3-torch"
_NEEDED = ("numpy<2", "grpcio", "protobuf", "typing-extensions")
_SOURCES = Path(__file__).parents[2] / "sidecar" / "src"


def python() -> list[str]:
    """Return the beginning of a command: a Python that imports torch and this checkout's sources.

    Raises:
        Missing: torch is not installed, and Debian's package is for another machine or Python.
        subprocess.CalledProcessError: the package could not be fetched; stderr has the reason.
    """
    if importlib.util.find_spec("torch"):
        return [sys.executable]
    tag = f"3{sys.version_info.minor}"
    made = create_once(cache_dir() / f"pytorch-cpython-{tag}", "apt", lambda new: _make(new, tag))
    root = made / "root"
    lib = root / "usr/lib/x86_64-linux-gnu"
    libraries = (lib, lib / "blas", lib / "lapack", root / "usr/lib", root / "lib" / lib.name)
    modules = (root / "usr/lib/python3/dist-packages", _SOURCES)
    paths = {"LD_LIBRARY_PATH": libraries, "PYTHONPATH": modules}
    settings = [f"{name}={':'.join(map(str, found))}" for name, found in paths.items()]
    return ["env", *settings, str(made / "venv" / "bin" / "python")]


def _make(made: Path, tag: str) -> None:
    unpack(_PACKAGE, made / "root")
    if not list(made.glob(f"root/usr/lib/python3/dist-packages/torch/_C.*-{tag}-x86_64*.so")):
        raise AptMissingError(
            "PyTorch is not installed, and Debian's package is for another Python or machine"
        )
    run(sys.executable, "-m", "venv", made / "venv")
    run(made / "venv" / "bin" / "python", "-m", "pip", "install", "--quiet", *_NEEDED)
