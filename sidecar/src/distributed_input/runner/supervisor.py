"""One run from the first process to the last.

    wrappers -> dispatchers -> workers and sidecars -> trainers; then the reverse order

Everything runs on one event loop, in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.link.credentials import Credentials
from distributed_input.runner import process_wrapper
from distributed_input.runner.display import report
from distributed_input.runner.display.monitor import ProgressMonitor
from distributed_input.runner.display.status_client import StatusClient
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.plan import Plan, dispatcher_address
from distributed_input.runner.processes import children as child_processes
from distributed_input.runner.processes import run_events, trainers
from distributed_input.runner.processes.children import Children
from distributed_input.runner.processes.process_group import ProcessGroup
from distributed_input.runner.processes.supervised_process import (
    EXIT_PROCESS_FAILED,
    ProcessFailedError,
)

_WRAPPER_SECONDS = 8.0


@dataclass(frozen=True)
class RunResult:
    """How a run ended."""

    report: Mapping[str, Any]
    """See `report.of_run`."""
    failed_log: Path | None
    """Log of the process that ended the run; None if the trainers ended it."""
    interrupted: bool
    """A signal ended the run."""
    trained: bool
    """The trainers were started."""


@dataclass
class Supervisor:
    """Runs a plan once."""

    plan: Plan
    folders: RunFolders
    env: Mapping[str, str]
    terminal: Terminal
    start_seconds: float = 120.0
    """Time limit for all processes to be ready."""
    grace_seconds: float = 30.0
    """Time limit for the trainers to end after a signal."""

    def __post_init__(self) -> None:
        self._events = run_events.RunEvents()
        self._group = ProcessGroup(self.plan, self.folders, self.env, self._events, self._log)
        self._monitor = ProgressMonitor(self.plan, self.terminal, self._group.processes, self._log)
        self._trainers: list[trainers.Trainer] = []
        self._training_seconds: float | None = None

    async def run(self) -> RunResult:
        """Run the plan to its end. No process of the run is left afterwards."""
        with (
            Children() as children,
            run_events.handle_signals(self._on_interrupt, self._on_suspend),
        ):
            # Before all other processes, so that killing the runner leaves nothing behind.
            self._trainers += trainers.start_wrappers(
                children, self.plan, self.folders, dict(self.env), self.terminal.is_live
            )
            watching = asyncio.ensure_future(self._monitor.run())
            try:
                status = await self._start_and_train(children)
            finally:
                if watching.done() and not watching.cancelled():
                    self._log(
                        f"the progress display failed: {watching.exception()!r} (please report)"
                    )
                watching.cancel()
                await self._shut_down()
        return self._result(status)

    async def _start_and_train(self, children: Children) -> int:
        """Return the exit status."""
        started = time.monotonic()
        starting = asyncio.ensure_future(self._group.start(children, self.start_seconds))
        changed = asyncio.ensure_future(self._events.changed.wait())
        try:
            await asyncio.wait({starting, changed}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        except ProcessFailedError as error:
            self._events.fail(error)
        finally:
            starting.cancel()
            changed.cancel()
        if self._events.failure is not None:
            return EXIT_PROCESS_FAILED
        if self._events.requests:
            return 128 + self._events.requests[0][0]
        seconds = time.monotonic() - started
        self._log(f"all processes are ready after {seconds:.1f} s: starting the trainer")
        return await self._train()

    async def _train(self) -> int:
        clients = {}
        for one in self.plan.inputs:
            credentials = Credentials.from_args(str(self.folders.token(one.name)), {})
            address = dispatcher_address(self.plan, self.folders, one)
            clients[one.name] = StatusClient(address, credentials)
        self._monitor.attach(clients, self._trainers)
        started = time.monotonic()
        self._training_seconds = 0.0
        try:
            status = await trainers.run_trainers(
                self._trainers, self._events, self.grace_seconds, self._log
            )
        finally:
            self._training_seconds = time.monotonic() - started
        return status if self._events.failure is None else EXIT_PROCESS_FAILED

    async def _shut_down(self) -> None:
        self._events.closed = True
        for trainer in self._trainers:
            if trainer.child.alive:
                trainer.send(signal.SIGKILL)
        # An error while collecting statistics must not leave processes behind.
        with contextlib.suppress(Exception):
            await self._monitor.sample()
        await self._group.stop_all_but_dispatchers()
        with contextlib.suppress(Exception):
            await self._monitor.sample(wait_for_restarts=self._events.failure is None)
        self._monitor.close()
        await self._group.stop()
        self.terminal.clear()
        wrappers = [trainer.child for trainer in self._trainers]
        for trainer in self._trainers:
            trainer.close()
        if not await child_processes.ended_within(wrappers, _WRAPPER_SECONDS):
            await child_processes.stop(wrappers, 1.0)
        # A killed wrapper may have left processes.
        process_wrapper.kill_run(self.folders.run)

    def _on_interrupt(self, number: int) -> None:
        if self._events.closed:
            self._group.kill()
        elif not self._events.requests and self._training_seconds is not None:
            self._log(
                f"{signal.Signals(number).name}: the trainer got it and has "
                f"{self.grace_seconds:g} s to end. Send it again to end the trainer sooner"
            )
        self._events.interrupted = True
        self._events.terminate(number)

    def _on_suspend(self) -> None:
        """Suspend the trainers too: they are in other sessions, so Ctrl-Z does not reach them."""
        self.terminal.clear()
        for trainer in self._trainers:
            trainer.send(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        # Execution continues here after SIGCONT.
        for trainer in self._trainers:
            trainer.send(signal.SIGCONT)

    def _result(self, status: int) -> RunResult:
        processes = self._group.processes
        reports = {one.name: report.of_process(one.peak_bytes, one.restarts) for one in processes}
        for trainer in self._trainers:
            reports[trainer.child.name] = report.of_process(trainer.peak_bytes)
        seconds = self._training_seconds or 0.0
        inputs = {}
        for one in self.plan.inputs:
            names = [self.plan.process_name("worker", one, index) for index in range(one.workers)]
            workers = {each.name: each.addresses for each in processes if each.name in names}
            stats = self._monitor.stats[one.name]
            inputs[one.name] = report.of_input(stats, workers, self.plan.consumers, seconds)
        cause = str(self._events.failure or "")
        return RunResult(
            report.of_run(status, cause, seconds, inputs, reports),
            failed_log=self._events.failure.log if self._events.failure else None,
            interrupted=self._events.interrupted,
            trained=self._training_seconds is not None,
        )

    def _log(self, text: str) -> None:
        self.terminal.message(f"distributed-input: {text}")
