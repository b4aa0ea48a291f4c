"""Child processes on an event loop."""

from __future__ import annotations

import asyncio
import os
import signal
import sys

from distributed_input.runner.processes.children import Children, ended_within, stop
from distributed_input.runner.processes.trainers import exit_status

IGNORES_SIGTERM = """
import signal
signal.signal(signal.SIGTERM, signal.SIG_IGN)
print("ready", flush=True)
signal.pause()
"""


def test_an_exit_status_is_reported():
    async def run() -> int:
        with Children() as children:
            child = children.start("one", ["sh", "-c", "exit 7"], os.environ)
            assert await ended_within([child], 30)
            return child.exited.result()

    assert asyncio.run(run()) == 7


def test_a_child_that_ignores_sigterm_is_killed():
    async def run() -> int:
        with Children() as children:
            command = [sys.executable, "-S", "-c", IGNORES_SIGTERM]
            child = children.start("one", command, os.environ, pipes=True)
            assert child.process.stdout
            assert child.process.stderr
            await asyncio.to_thread(child.process.stdout.readline)
            await stop([child], 0.1)
            child.process.stdout.close()
            child.process.stderr.close()
            return child.exited.result()

    status = asyncio.run(run())
    assert status == -signal.SIGKILL
    assert exit_status(status) == 128 + signal.SIGKILL


def test_leaving_the_context_kills_live_children():
    async def run() -> int | None:
        with Children() as children:
            child = children.start("one", ["sleep", "600"], os.environ)
        return child.process.returncode

    assert asyncio.run(run()) == -signal.SIGKILL
