"""The build backend of this distribution: `uv_build`, after a compiler has built the native ops.

The wheel then has the tag of the platform. Without a compiler, it is one for all platforms, and
rows are encoded in Python. `python native/backend.py` builds the library in the source tree.

CXX: the compiler; default: c++, g++ or clang++. CXXFLAGS: more arguments. A cross-compiler needs
DISTRIBUTED_INPUT_MACHINE, for example aarch64.
"""

import base64
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
    """Build the library. Return whether there is one; print the reason if there is none."""
    compilers = (os.environ.get("CXX"), "c++", "g++", "clang++")
    compiler = next((one for one in compilers if one and shutil.which(shlex.split(one)[0])), None)
    if sys.platform != "linux" or compiler is None:
        sys.stderr.write("native ops: no C++ compiler, rows are encoded in Python\n")
        return target.exists()
    more = shlex.split(os.environ.get("CXXFLAGS", ""))
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        # TensorFlow has loaded its own library of this name before it loads the ops.
        stub = Path(folder, _TENSORFLOW)
        command = [*shlex.split(compiler), *more]
        name = ["-shared", "-fPIC", f"-Wl,-soname,{_TENSORFLOW}", "-x", "c++", os.devnull]
        made = Path(folder, target.name)
        link = ["-Wl,--no-as-needed", str(stub), "-Wl,--as-needed", "-Wl,-s"]
        try:
            subprocess.run([*command, *name, "-o", stub], check=True)
            subprocess.run(
                [*command, *_FLAGS, "ops.cc", "-o", made, *link], check=True, cwd=_FOLDER
            )
        except (OSError, subprocess.CalledProcessError) as error:
            sys.stderr.write(f"native ops: rows are encoded in Python: {error}\n")
            return False
        made.replace(target)
    return True


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    import uv_build

    name = uv_build.build_wheel(wheel_directory, config_settings, metadata_directory)
    # The pyproject.toml excludes the library, so that an sdist never has one.
    is_built = build_library()
    return _with_library(Path(wheel_directory, name)) if is_built else name


def build_editable(wheel_directory, config_settings=None, metadata_directory=None):
    import uv_build

    build_library()
    return uv_build.build_editable(wheel_directory, config_settings, metadata_directory)


def __getattr__(name: str):
    """Return the other hooks of uv_build."""
    import uv_build

    return getattr(uv_build, name)


def _with_library(wheel: Path) -> str:
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
        library = zipfile.ZipInfo(_IN_WHEEL)  # with a fixed date: equal builds are equal files
        library.external_attr = 0o100755 << 16
        library.compress_type = zipfile.ZIP_DEFLATED
        new.writestr(library, _LIBRARY.read_bytes())
        lines.insert(-1, _record_line(_IN_WHEEL, _LIBRARY.read_bytes()))
        new.writestr(record, "".join(f"{line}\n" for line in lines))
    wheel.unlink()
    return target.name


def _record_line(name: str, data: bytes) -> str:
    digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode()
    return f"{name},sha256={digest.rstrip('=')},{len(data)}"


if __name__ == "__main__":
    sys.exit(not build_library())
