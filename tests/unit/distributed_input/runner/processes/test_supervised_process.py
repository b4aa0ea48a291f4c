"""Supervision of one real process."""

from __future__ import annotations

import asyncio
import doctest
import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.runner.processes import supervised_process
from distributed_input.runner.processes.children import Children, stop
from distributed_input.runner.processes.supervised_process import (
    CrashHistory,
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


def process_of(folder: Path, code: str, history: CrashHistory) -> SupervisedProcess:
    ready = folder / "ready"
    return SupervisedProcess(
        name="worker-0",
        command=lambda: [sys.executable, "-S", "-c", code, str(ready)],
        env=dict(os.environ),
        log=folder / "log",
        ready_file=ready,
        history=history,
    )


def test_the_examples_in_docstrings_are_right():
    results = doctest.testmod(supervised_process)
    assert results.attempted
    assert not results.failed


def test_a_process_is_restarted_until_the_runner_gives_up(tmp_path):
    history = CrashHistory(first_delay=0.0, max_crashes=2, max_unready=9)
    process = process_of(tmp_path, "import sys; sys.exit('no disk')", history)
    messages: list[str] = []

    async def run() -> None:
        with Children() as children:
            await process.run(children, messages.append)

    with pytest.raises(ProcessFailedError, match=r"ended with status 1: no disk \[it crash"):
        asyncio.run(run())
    assert process.state is ProcessState.FAILED
    assert process.restarts == 2
    assert messages[0] == "worker-0 ended with status 1: no disk (restart 1 in 0 s)"


def test_a_stopped_process_is_not_restarted(tmp_path):
    process = process_of(tmp_path, BECOMES_READY, CrashHistory())
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


def steps(gaps: list[float], *, ready: bool = True) -> list[float | str]:
    """Return the steps after crashes that are `gaps` seconds apart, up to the end of the run."""
    history, now, found = CrashHistory(), 0.0, []
    for gap in gaps:
        now += gap
        found.append(history.after_exit(now, 1, ready))
        if isinstance(found[-1], str):
            break
    return found


@pytest.mark.parametrize(
    ("gaps", "ready", "last"),
    [
        ([1.0] * 5, True, 4.0),
        ([9.0] * 20, True, "it crashed 6 times within 60 s"),
        ([1.0, 1.0, 1.0, 61.0], True, 0.25),  # a minute without crashes
        # However long each takes: importing a framework may take most of a minute.
        ([100.0] * 20, False, "it ended 3 times in a row before it was ready"),
    ],
)
def test_the_step_after_several_crashes(gaps, ready, last):
    assert steps(gaps, ready=ready)[-1] == last


@pytest.mark.parametrize(("ever_ready", "kind"), [(False, str), (True, float)])
def test_an_invalid_configuration_is_final_only_at_the_first_start(ever_ready, kind):
    # Later, another process may have taken the port in the meantime.
    assert isinstance(CrashHistory(ever_ready=ever_ready).after_exit(0.0, 2, False), kind)


@given(st.lists(st.floats(0, 1000), max_size=50), st.booleans())
def test_delays_stay_within_bounds_and_a_crash_loop_ends(gaps, ready):
    found, limits = steps(gaps, ready=ready), CrashHistory()
    delays = [step for step in found if isinstance(step, float)]
    assert all(limits.first_delay <= delay <= limits.max_delay for delay in delays)
    if len(found) > limits.max_crashes and sum(gaps[: len(found)]) < limits.window:
        assert isinstance(found[-1], str)
