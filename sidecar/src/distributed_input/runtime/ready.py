"""The ready file, from which a parent process reads the addresses of its child."""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

from distributed_input.api.errors import ConfigError


def write(path: str | None, address: str, metrics: str | None) -> None:
    """Write {"address", "metrics", "pid"} to `path` atomically, as JSON. None: write nothing.

    Raises:
        ConfigError: the file cannot be written.
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
