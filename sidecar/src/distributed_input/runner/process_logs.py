"""The processes' log files: JSON lines, mixed with lines that libraries write."""

from __future__ import annotations

import contextlib
import json
import os
import re
import shutil
import sys
from pathlib import Path

_TAIL_BYTES = 64 * 1024
_RECENT_LINES = 30
_MAX_CHARACTERS = 300
_KEPT_FOLDERS = 5
# Lines that gRPC's and TensorFlow's C++ code may write at any time.
_LIBRARY = re.compile(
    r"[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    r"|WARNING: All log messages before absl|To enable the following instructions"
)


def tail(log: Path, lines: int) -> list[str]:
    """Return the last `lines` lines of a log that are not empty; [] if there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def cause_of_exit(log: Path) -> str:
    """Return the line that most likely states why the process ended; "" if there is none.

    It is the last error that our code logged, or else the last line that Python printed. A
    traceback ends with the exception, and argparse's output with the error.
    """
    recent = tail(log, _RECENT_LINES)
    own = [line for line in recent if not _LIBRARY.match(line)] or recent or [""]
    relevant = [line for line in own if (entry := _entry(line)) is None or _is_error(entry)]
    last = (relevant or own)[-1]
    entry = _entry(last)
    text = last.strip() if entry is None else _entry_text(entry)
    return text if len(text) <= _MAX_CHARACTERS else text[: _MAX_CHARACTERS - 3] + "..."


def _entry(line: str) -> dict[str, object] | None:
    if not line.startswith("{"):
        return None
    try:
        found = json.loads(line)
    except ValueError:
        return None
    return found if isinstance(found, dict) and "message" in found else None


def _is_error(entry: dict[str, object]) -> bool:
    return entry.get("level") in ("error", "critical")


def _entry_text(entry: dict[str, object]) -> str:
    extra = [
        f"{key}={value}"
        for key, value in entry.items()
        if key not in ("time", "level", "part", "logger", "message", "traceback")
    ]
    traceback = str(entry.get("traceback", "")).strip().splitlines()[-1:]
    return " ".join([str(entry["message"]), *extra, *traceback])


def trim(log: Path, max_bytes: int) -> None:
    """Cut a log of more than `max_bytes` to its last lines, in place.

    The process that writes it appends (O_APPEND), so its next line follows them.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size > max_bytes:
            rest = tail(log, sys.maxsize)
            log.write_text("".join(f"{line}\n" for line in rest))


def keep(logs: Path, target: Path) -> Path | None:
    """Copy the logs in folder `logs` to folder `target`; return it, or None if that failed."""
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in sorted(logs.glob("*.log")):
            shutil.copy(log, target / log.name)
    except OSError:
        return None
    return target


def prune(parent: Path, prefix: str) -> None:
    """Remove all but the newest five folders named `prefix`* in `parent`."""
    kept = [path for path in parent.glob(prefix + "*") if path.is_dir() and not path.is_symlink()]
    kept.sort(key=lambda path: path.stat().st_mtime)
    for path in kept[:-_KEPT_FOLDERS]:
        if path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
