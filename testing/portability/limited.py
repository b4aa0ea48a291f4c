"""A command with a time limit, which ends together with the processes of its group."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path


def run_limited(command: Sequence[str], seconds: float, folder: Path) -> tuple[int, str]:
    """Run a command as the leader of a new session.

    At the limit, and after its end, the processes of its group are killed.

    Args:
        command: the command.
        seconds: time limit.
        folder: its working folder.

    Returns:
        The exit status (-9 at the limit), and its output with that of its processes.
    """
    with tempfile.TemporaryFile() as output:
        process = subprocess.Popen(
            command, cwd=folder, start_new_session=True, stdout=output, stderr=subprocess.STDOUT
        )
        try:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(seconds)
        finally:
            with contextlib.suppress(ProcessLookupError):  # all have ended
                os.killpg(process.pid, signal.SIGKILL)
            status = process.wait()
        output.seek(0)
        return status, output.read().decode(errors="replace")
