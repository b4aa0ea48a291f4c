"""The ready file: how whoever started a process learns its addresses."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from distributed_input.api.errors import ConfigError


def write(path: str | None, address: str, metrics: str | None) -> None:
    """Write {"address", "metrics", "pid"} to `path` in one step; nothing where path is None.

    `address` and `metrics` are "host:port"; metrics None where none are served. Raises
    ConfigError where the file cannot be written.
    """
    if not path:
        return
    content = json.dumps({"address": address, "metrics": metrics, "pid": os.getpid()})
    target = Path(path)
    try:
        handle, name = tempfile.mkstemp(dir=target.parent, prefix=f".{target.name}.")
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(content)
        os.replace(name, target)
    except OSError as error:
        raise ConfigError(f"--ready-file {path}: {error.strerror}") from error
