"""A Python with PyTorch, JAX and Keras, and what trains with them. It takes about 6 GB."""

from __future__ import annotations

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
_ROOT = Path(__file__).parents[2]


def command(program: str, *arguments: str) -> list[str]:
    """Return a command that runs a module of this folder with this checkout's sources.

    Raises:
        subprocess.CalledProcessError: the environment could not be created.
    """
    tag = f"{sys.version_info.major}{sys.version_info.minor}"
    key = hashlib.sha256("\n".join(PACKAGES).encode()).hexdigest()[:12]
    made = create_once(cache_dir() / f"frameworks-cpython-{tag}-{key}", "frameworks", _make)
    sources = f"{_ROOT / 'sidecar' / 'src'}:{_ROOT}"
    python = str(made / "bin" / "python")
    module = f"testing.frameworks.{program}"
    return ["env", f"PYTHONPATH={sources}", python, "-m", module, *arguments]


def _make(made: Path) -> None:
    # Relocatable: the folder is renamed after it is complete.
    venv = ("venv", "--quiet", "--relocatable", "--python", sys.executable, made)
    install = ("pip", "install", "--quiet", "--python", made / "bin" / "python", *PACKAGES)
    for arguments in (venv, install):
        subprocess.run((uv(), *arguments), check=True)
