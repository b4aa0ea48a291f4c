"""Checks before any process starts: trainer command, entry points, where results are written."""

from __future__ import annotations

import ast
import importlib.util
import os
import re
import shlex
import shutil
import sys
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


def check_target(flag: str, path: Path, is_folder: bool) -> None:
    """Check that results can be written to a file or folder, which may be missing.

    Raises:
        ConfigError: they cannot.
    """
    where, parent = f"{flag} {path}", Path(os.path.realpath(path)).parent  # links are followed
    if is_folder and os.path.lexists(path) and not path.is_dir():
        raise ConfigError(f"{where}: is not a folder: name a folder, or a path that does not exist")
    if not is_folder and path.is_dir():
        raise ConfigError(f"{where}: is a folder: name a file, such as {path / 'run.json'}")
    if parent.exists() and not parent.is_dir():
        raise ConfigError(f"{where}: {parent} is not a folder")
    if not parent.is_dir():
        raise ConfigError(f"{where}: folder {parent} does not exist")
    if not os.access(path if path.exists() else parent, os.W_OK):
        raise ConfigError(f"{where}: permission denied: name another one")


def entry_point_problem(target: str, folder: str | None) -> str:
    """Return what is wrong with the module or the name of an entry point; "" if nothing is.

    The module is searched, in `folder` and Python's path, and not imported, which takes
    TensorFlow's import. What is not certain is left to the workers.
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
