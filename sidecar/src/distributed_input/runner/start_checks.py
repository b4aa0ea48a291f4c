"""Checks before any process starts: the trainer command, and where the run writes its results."""

from __future__ import annotations

import os
import shlex
import shutil
import tempfile
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
    elif file.is_file():
        try:
            file.open("ab").close()
        except OSError as error:
            raise ConfigError(f"{flag}: {error.strerror}: name another file") from error
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
