"""New virtual environments, without this checkout, that install from an index on this machine."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from testing.publishing.artifacts import uv

_OURS = ("distributed-input", "distributed-input-operator")
# The same code as tensorflow without GPU kernels: a download of 260 MiB instead of 545 MiB.
_HAS_CPU_PACKAGE = sys.platform == "linux" and platform.machine() == "x86_64"


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the index of our packages. Others come from the usual index."""

    folder: Path
    index: str
    """URL of `servers.package_index`."""

    @property
    def python(self) -> Path:
        """Return the path of the environment's Python."""
        return self.folder / "bin" / "python"

    def install(self, *requirements: str, tensorflow: str = "") -> None:
        """Install packages with uv, which links large ones from its cache.

        Args:
            requirements: as pip takes them.
            tensorflow: versions of TensorFlow, if the requirements contain it: ">=2.16".
        """
        command: list[str | Path] = [uv(), "pip", "install", "--quiet", "--python", self.python]
        command += ["--index", f"{self.index}/simple/"]
        # A build of this checkout has the same version as the one before.
        command += [f"--refresh-package={name}" for name in _OURS]
        if tensorflow and _HAS_CPU_PACKAGE:
            overrides = self.folder / "overrides.txt"
            overrides.write_text("tensorflow; sys_platform == 'none'\n")
            command += ["--override", overrides, f"tensorflow-cpu{tensorflow}"]
        elif tensorflow:
            command.append(f"tensorflow{tensorflow}")
        run_outside((*command, *requirements), self.folder)

    def pip_install(self, *requirements: str) -> None:
        """Install packages with pip, as users do."""
        pip = (self.python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check")
        index = ("--extra-index-url", f"{self.index}/simple/")
        run_outside((*pip, *index, *requirements), self.folder)

    def run(self, *command: str | Path, cwd: Path) -> subprocess.CompletedProcess[str]:
        """Run a command with the environment's programs. Does not raise if it fails."""
        return run_outside(command, cwd, self.folder / "bin", check=False)


def create(folder: Path, index: str, python: Path, pip: bool = False) -> Environment:
    """Create an environment of an interpreter. `pip`: with pip itself."""
    if pip:
        run_outside((python, "-m", "venv", folder), folder.parent)
    else:
        run_outside((uv(), "venv", "--quiet", "--python", python, folder), folder.parent)
    return Environment(folder, index)


def interpreter(version: str) -> Path | None:
    """Return a Python of a version such as "3.10", from the path or pyenv. None: not found."""
    if version == f"{sys.version_info.major}.{sys.version_info.minor}":
        # Not sys.executable: an environment in .venv would be a parent of the new one.
        return Path(sys._base_executable)
    return next((found for found in _candidates(version) if _runs(found)), None)


def _candidates(version: str) -> Iterator[Path]:
    if found := shutil.which(f"python{version}"):
        yield Path(found)
    pyenv = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv")
    yield from pyenv.glob(f"versions/{version}.*/bin/python{version}")


def _runs(python: Path) -> bool:
    # pyenv's programs in the path exist for versions that are not selected too.
    return subprocess.run((python, "-c", ""), capture_output=True).returncode == 0


def run_outside(
    command: tuple[str | Path, ...], cwd: Path, programs: Path | None = None, check: bool = True
) -> subprocess.CompletedProcess[str]:
    """Run a command in a folder, without this checkout's environment and modules.

    Args:
        command: the program and its arguments.
        cwd: working directory.
        programs: folder of programs that come first.
        check: raise AssertionError, with the output, if the command fails.
    """
    own = {"PYTHONPATH", "VIRTUAL_ENV", "PYTHONHOME", "UV_PROJECT_ENVIRONMENT"}
    env = {name: value for name, value in os.environ.items() if name not in own}
    venv = Path(sys.prefix, "bin")
    folders = [one for one in env["PATH"].split(os.pathsep) if Path(one) != venv]
    env["PATH"] = os.pathsep.join([str(programs), *folders] if programs else folders)
    done = subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True)
    assert not check or done.returncode == 0, f"{command}: {done.stdout}{done.stderr}"
    return done
