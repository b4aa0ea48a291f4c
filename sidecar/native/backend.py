"""The build backend of this distribution: `uv_build`, after a compiler has built the native ops.

The wheel then has the tag of the platform. Without a compiler, it is one for all platforms, and
rows are encoded in Python. `python native/backend.py` builds the library in the source tree.

CXX: the compiler; default: c++, g++ or clang++. CXXFLAGS: more arguments. A cross-compiler needs
DISTRIBUTED_INPUT_MACHINE, for example aarch64.
"""

import base64
import contextlib
import hashlib
import os
import platform
import shlex
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

_FOLDER = Path(__file__).resolve().parent
_IN_WHEEL = "distributed_input/graph/_native_ops.so"
_LIBRARY = _FOLDER.parent / "src" / _IN_WHEEL
_TENSORFLOW = "libtensorflow_framework.so.2"  # of all versions 2.x
_FLAGS = ("-O3", "-std=c++17", "-Wall", "-Wextra", "-fPIC", "-shared", "-fvisibility=hidden")
_GLIBC = "2_17"  # the symbols that the library uses are not newer


def _machine() -> str:
    return os.environ.get("DISTRIBUTED_INPUT_MACHINE", platform.machine())


def build_library(target: Path = _LIBRARY) -> bool:
    """Build the library. Return whether it was built; print the reason if not.

    An older library does not stay: it may be of another version or machine.
    """
    error = _build(target)
    if error:
        sys.stderr.write(f"native ops: rows are encoded in Python: {error}\n")
        with contextlib.suppress(OSError):
            target.unlink()
    return not error


def _build(target: Path) -> str:
    """Build the library. Return the reason if that is not possible, else ""."""
    names = (os.environ.get("CXX", "").strip(), "c++", "g++", "clang++")
    compiler = next((one for one in names if one and shutil.which(shlex.split(one)[0])), None)
    if sys.platform != "linux" or compiler is None:
        return "no C++ compiler"
    more = shlex.split(os.environ.get("CXXFLAGS", ""))
    try:
        with tempfile.TemporaryDirectory(dir=target.parent) as folder:
            # TensorFlow has loaded its own library of this name before it loads the ops.
            stub = Path(folder, _TENSORFLOW)
            command = [*shlex.split(compiler), *more]
            name = ["-shared", "-fPIC", f"-Wl,-soname,{_TENSORFLOW}", "-x", "c++", os.devnull]
            made = Path(folder, target.name)
            link = ["-Wl,--no-as-needed", str(stub), "-Wl,--as-needed", "-Wl,-s"]
            subprocess.run([*command, *name, "-o", stub], check=True)
            subprocess.run(
                [*command, *_FLAGS, "ops.cc", "-o", made, *link], check=True, cwd=_FOLDER
            )
            made.replace(target)
    except (OSError, subprocess.CalledProcessError) as error:
        return str(error)
    return ""


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import uv_build

    name = uv_build.build_wheel(wheel_directory, config_settings, metadata_directory)
    # Not in the source tree, which may be read-only, and which an editable installation uses.
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder, _LIBRARY.name)
        wheel = Path(wheel_directory, name)
        return _with_library(wheel, library) if build_library(library) else name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    import uv_build

    build_library()
    return uv_build.build_editable(wheel_directory, config_settings, metadata_directory)


def __getattr__(name: str):
    """Return the other hooks of uv_build."""
    import uv_build

    return getattr(uv_build, name)


def _with_library(wheel: Path, library: Path) -> str:
    """Add the library to a wheel, and the tag of its platform. Return its new name."""
    machine = _machine()
    tag = f"py3-none-manylinux_{_GLIBC}_{machine}"
    target = wheel.with_name(wheel.name.replace("py3-none-any", tag))
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as new:
        record = next(one for one in old.infolist() if one.filename.endswith(".dist-info/RECORD"))
        lines = old.read(record).decode().splitlines()
        for entry in old.infolist():
            data = old.read(entry)
            if entry.filename.endswith(".dist-info/WHEEL"):
                text = data.decode().replace("py3-none-any", tag)
                data = text.replace("Root-Is-Purelib: true", "Root-Is-Purelib: false").encode()
                lines = [one for one in lines if not one.startswith(f"{entry.filename},")]
                lines.insert(-1, _record_line(entry.filename, data))
            if entry is not record:
                new.writestr(entry, data)
        entry = zipfile.ZipInfo(_IN_WHEEL)  # with a fixed date: equal builds are equal files
        entry.external_attr = 0o100755 << 16
        entry.compress_type = zipfile.ZIP_DEFLATED
        new.writestr(entry, library.read_bytes())
        lines.insert(-1, _record_line(_IN_WHEEL, library.read_bytes()))
        new.writestr(record, "".join(f"{line}\n" for line in lines))
    wheel.unlink()
    return target.name


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return f"{name},sha256={digest.rstrip('=')},{len(data)}"


if __name__ == "__main__":
    sys.exit(not build_library())
