"""Checks before any process starts: trainer command, entry points, where results are written."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import sys
import tempfile
from importlib.machinery import PathFinder
from pathlib import Path

from distributed_input.api.errors import ConfigError
from distributed_input.runner.process_wrapper import EXIT_NOT_EXECUTABLE, EXIT_NOT_FOUND


def command_problem(program: str) -> tuple[int, str] | None:
    """Return the exit status and the message for a program that cannot start, or None.

    The exit statuses are those of shells.
    """
    if shutil.which(program) is not None:
        return None
    file = Path(program)
    # Without a slash, the program is searched in $PATH only.
    if os.sep not in program or not file.exists():
        return EXIT_NOT_FOUND, f"{program}: command not found"
    if file.is_dir():
        return EXIT_NOT_EXECUTABLE, f"{program}: is a directory: name a program, such as `python`"
    quoted = shlex.quote(program)
    other = f", or start it with `python {quoted}`" if file.suffix == ".py" else ""
    return EXIT_NOT_EXECUTABLE, f"{program}: permission denied: run `chmod +x {quoted}`{other}"


def check_report(file: Path) -> None:
    """Check that the report can be written to a file. An existing file keeps its content.

    Raises:
        ConfigError: it cannot.
    """
    flag = f"--report {file}"
    if file.is_dir():
        raise ConfigError(f"{flag}: is a folder: name a file, such as {file / 'run.json'}")
    if not file.exists():
        _check_parent(flag, file)
    elif not os.access(file, os.W_OK):  # to open a pipe would end its reader
        raise ConfigError(f"{flag}: Permission denied: name another file")


def check_logs(folder: Path) -> None:
    """Check that the logs can be copied to a folder, which may be missing.

    Raises:
        ConfigError: they cannot.
    """
    flag = f"--keep-logs {folder}"
    if folder.is_dir():
        _check_writable(flag, folder)
    elif os.path.lexists(folder):
        raise ConfigError(f"{flag}: is not a folder: name a folder, or a path that does not exist")
    else:
        _check_parent(flag, folder)


def entry_point_problem(target: str, folder: str | None) -> str:
    """Return what is wrong with the module or the name of an entry point; "" if nothing is.

    The module is searched and not imported, which takes TensorFlow's import. What is not certain is
    left to the workers.

    Args:
        target: "package.module:function".
        folder: the folder in front of Python's path. None: none.
    """
    module, _, attribute = target.partition(":")
    places = [*([folder] if folder else []), os.getcwd(), *sys.path]
    found = None
    for end in range(1, module.count(".") + 2):
        name = ".".join(module.split(".")[:end])
        try:
            found = PathFinder.find_spec(name, places)
            if found is None and end == 1:
                found = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            return ""
        if found is None:
            place = folder or "Python's path"
            return (
                f"no module {module!r} in {place}: check the name, and "
                "spec.dataset.entryPoint.source"
            )
        places = list(found.submodule_search_locations or ())
    return _name_problem(module, attribute.partition(".")[0], found.origin if found else None)


def _name_problem(module: str, name: str, file: str | None) -> str:
    try:
        source = Path(file or "").read_text(encoding="utf-8")
        tree = ast.parse(source)
    except (OSError, ValueError, SyntaxError):
        return ""
    may_be_made = re.search(r"import \*|__getattr__|globals\(|setattr\(|exec\(", source)
    if may_be_made or re.search(rf"\b{re.escape(name)}\b", source):
        return ""
    functions = [one.name for one in tree.body if isinstance(one, ast.FunctionDef)]
    return f"module {module} has no {name!r}; it has {', '.join(functions) or 'no functions'}"


def _check_parent(flag: str, path: Path) -> None:
    parent = path.parent
    if parent.exists() and not parent.is_dir():
        raise ConfigError(f"{flag}: {parent} is not a folder")
    if not parent.is_dir():
        raise ConfigError(f"{flag}: folder {parent} does not exist")
    _check_writable(flag, Path(os.path.realpath(path)).parent)


def _check_writable(flag: str, folder: Path) -> None:
    """Create a file without a name, because access rights do not show a read-only mount."""
    try:
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        raise ConfigError(
            f"{flag}: cannot write to folder {folder}: {error.strerror}: name another folder"
        ) from error
