"""Environments with PyTorch, JAX and Keras and what trains with them, or with other loaders.

The first takes about 6 GB.
"""

from __future__ import annotations

import functools
import hashlib
import subprocess
import sys
from pathlib import Path

from testing.cluster.binaries import cache_dir, create_once
from testing.publishing.artifacts import uv

PACKAGES = (
    *("torch==2.15.0", "torchdata==0.11.0", "accelerate==1.15.0", "lightning==2.6.6"),
    *("transformers==5.24.0", "jax==0.10.2", "orbax-checkpoint==0.12.8", "grain==0.2.18"),
    *("keras==3.15.1", "numpy", "grpcio", "protobuf"),
)
"""The versions that `docs/pytorch.md` and `docs/jax.md` name, and the needs of a trainer."""
LOADERS = (
    *("torch==2.15.0", "grain==0.2.18", "mosaicml-streaming==0.13.0", "psutil"),
    *("numpy", "grpcio", "protobuf"),
)
"""Loaders that are measured; Streaming needs other versions of what trainers need."""
_ROOT = Path(__file__).parents[2]


def command(program: str, *arguments: str) -> list[str]:
    """Return a command that runs a module of this folder with this checkout's sources.

    Raises:
        subprocess.CalledProcessError: the environment could not be created.
    """
    return run_module(f"testing.frameworks.{program}", *arguments)


def run_module(
    module: str, *arguments: str, name: str = "frameworks", packages: tuple[str, ...] = PACKAGES
) -> list[str]:
    """Return a command that runs a module with this checkout's sources and with these packages.

    Raises:
        subprocess.CalledProcessError: the environment could not be created.
    """
    sources = f"{_ROOT / 'sidecar' / 'src'}:{_ROOT}"
    python = str(_folder(name, packages) / "bin" / "python")
    return ["env", f"PYTHONPATH={sources}", python, "-m", module, *arguments]


def site_packages() -> Path:
    """Return the folder with the installed packages, for pods with the same version of Python.

    Raises:
        subprocess.CalledProcessError: the environment could not be created.
    """
    (found,) = (_folder("frameworks", PACKAGES) / "lib").glob("python*/site-packages")
    return found


def _folder(name: str, packages: tuple[str, ...]) -> Path:
    tag = f"{sys.version_info.major}{sys.version_info.minor}"
    key = hashlib.sha256("\n".join(packages).encode()).hexdigest()[:12]
    folder = cache_dir() / f"{name}-cpython-{tag}-{key}"
    return create_once(folder, name, functools.partial(_make, packages))


def _make(packages: tuple[str, ...], made: Path) -> None:
    # Relocatable: the folder is renamed after it is complete.
    venv: tuple[str | Path, ...] = (
        "venv",
        "--quiet",
        "--relocatable",
        "--python",
        sys.executable,
        made,
    )
    install: tuple[str | Path, ...] = (
        "pip",
        "install",
        "--quiet",
        "--python",
        made / "bin" / "python",
        *packages,
    )
    for arguments in (venv, install):
        subprocess.run((uv(), *arguments), check=True)
