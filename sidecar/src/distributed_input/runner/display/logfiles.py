"""What the logs of the parts say: one JSON object a line, between lines of libraries."""

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
_LONGEST = 300
_KEPT_FOLDERS = 5
# What gRPC's and TensorFlow's C++ write at any time.
_LIBRARY = re.compile(
    r"[IWEF]\d{4} \d\d:|\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: [IWE] "
    r"|WARNING: All log messages before absl|To enable the following instructions"
)


def tail(log: Path, lines: int) -> list[str]:
    """The last `lines` lines of a log that are not empty; none where there is no log."""
    try:
        with log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-lines:]


def last_words(log: Path) -> str:
    """The line that most likely says why the part ended; empty where there is none.

    The last error of our own among the last lines, else what Python printed last: a traceback
    ends with the exception, and argparse with what is wrong.
    """
    recent = tail(log, _RECENT_LINES)
    ours = [line for line in recent if not _LIBRARY.match(line)] or recent or [""]
    telling = [line for line in ours if (entry := _entry(line)) is None or _is_error(entry)]
    last = (telling or ours)[-1]
    entry = _entry(last)
    text = last.strip() if entry is None else _worded(entry)
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."


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


def _worded(entry: dict[str, object]) -> str:
    extra = [
        f"{key}={value}"
        for key, value in entry.items()
        if key not in ("time", "level", "part", "logger", "message", "traceback")
    ]
    traceback = str(entry.get("traceback", "")).strip().splitlines()[-1:]
    return " ".join([str(entry["message"]), *extra, *traceback])


def trim(log: Path, most: int) -> None:
    """Cut a log that grew beyond `most` bytes to its last lines, in place.

    Its writer appends (O_APPEND), so it goes on behind them.
    """
    with contextlib.suppress(OSError):
        if log.stat().st_size > most:
            rest = tail(log, sys.maxsize)
            log.write_text("".join(f"{line}\n" for line in rest))


def keep(logs: Path, target: Path) -> Path | None:
    """Copy the folder `logs` to `target`, made where missing; None where that failed."""
    try:
        target.mkdir(mode=0o700, parents=True, exist_ok=True)
        for log in sorted(logs.glob("*.log")):
            shutil.copy(log, target / log.name)
    except OSError:
        return None
    return target


def prune(parent: Path, prefix: str) -> None:
    """Remove all but the newest few folders of kept logs, named `prefix`*, in `parent`."""
    kept = [path for path in parent.glob(prefix + "*") if path.is_dir() and not path.is_symlink()]
    kept.sort(key=lambda path: path.stat().st_mtime)
    for path in kept[:-_KEPT_FOLDERS]:
        if path.stat().st_uid == os.getuid():
            shutil.rmtree(path, ignore_errors=True)
