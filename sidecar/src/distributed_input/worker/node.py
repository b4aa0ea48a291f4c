"""The kind of this node. Floating-point results may differ between kinds of nodes."""

from __future__ import annotations

import os
import platform


def node_kind() -> str:
    """Return the processor model and the operating system of this node."""
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


NODE = node_kind()
"""Kind of this node, which the first block of a stream contains."""
