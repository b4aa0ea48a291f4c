"""Supervision of one real process."""

from __future__ import annotations

import asyncio
import doctest
import os
import sys
from pathlib import Path

import pytest

from distributed_input.runner.processes import supervised_process
from distributed_input.runner.processes.children import Children, stop
from distributed_input.runner.processes.restart_policy import RestartPolicy
from distributed_input.runner.processes.supervised_process import (
    ProcessFailedError,
    ProcessState,
    SupervisedProcess,
    unready,
)

BECOMES_READY = """
import pathlib, signal, sys
ready = pathlib.Path(sys.argv[1])
part = ready.with_suffix(".part")
part.write_text('{"address": "h:1"}')
part.rename(ready)
signal.pause()
"""


def process_of(folder: Path, code: str, policy: RestartPolicy) -> SupervisedProcess:
    ready = folder / "ready"
    return SupervisedProcess(
        name="worker-0",
        command=lambda: [sys.executable, "-S", "-c", code, str(ready)],
        env=dict(os.environ),
        log=folder / "log",
        ready_file=ready,
        policy=policy,
    )


def test_the_examples_in_docstrings_are_right() -> None:
    results = doctest.testmod(supervised_process)
    assert results.attempted
    assert not results.failed


def test_a_process_is_restarted_until_the_policy_gives_up(tmp_path: Path) -> None:
    policy = RestartPolicy(first_delay=0.0, max_crashes=2, max_unready=9)
    process = process_of(tmp_path, "import sys; sys.exit('no disk')", policy)
    messages: list[str] = []

    async def run() -> None:
        with Children() as children:
            await process.run(children, messages.append)

    with pytest.raises(ProcessFailedError, match=r"ended with status 1: no disk \[it crash"):
        asyncio.run(run())
    assert process.state is ProcessState.FAILED
    assert process.restarts == 2
    assert messages[0] == "worker-0 ended with status 1: no disk (restart 1 in 0 s)"


def test_a_stopped_process_is_not_restarted(tmp_path: Path) -> None:
    process = process_of(tmp_path, BECOMES_READY, RestartPolicy())
    assert unready([process]) == "worker-0 (not started)"

    async def run() -> None:
        with Children() as children:
            task = asyncio.ensure_future(process.run(children, lambda _: None))
            await asyncio.wait_for(process.ready.wait(), 30)
            assert unready([process]) == ""
            child = process.stop()
            assert child is not None
            await stop([child], 10)
            await task

    asyncio.run(run())
    assert (process.state, process.restarts) == (ProcessState.STOPPED, 0)
    assert process.addresses == ["h:1"]
