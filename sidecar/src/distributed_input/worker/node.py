"""The kind of this node, for whoever compares rows made on two."""

from __future__ import annotations

import os
import platform


def _node() -> str:
    """The kind of this node, as far as it may change what floating point comes to."""
    model = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                if line.startswith("model name"):
                    model = line.split(":", 1)[1].strip()
                    break
    except OSError:
        pass
    return f"{model} ({os.uname().sysname})"


NODE = _node()
"""Told with a stream's first block."""
