"""One run from the first process to the last.

    guards -> dispatchers -> workers and sidecars -> trainers; then back, in reverse

Everything is on one event loop, in the main thread.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from distributed_input.runner.display import report
from distributed_input.runner.display.asking import Dispatcher
from distributed_input.runner.display.monitor import Monitor
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.folders import Folders
from distributed_input.runner.plan import Files, Plan
from distributed_input.runner.processes import attend, events, guard, policy, trainers
from distributed_input.runner.processes import children as processes
from distributed_input.runner.processes.children import Children
from distributed_input.runner.processes.fleet import Fleet
from distributed_input.runner.processes.supervise import PartFailedError
from distributed_input.runtime.credentials import Credentials

EXIT_PART_FAILED = 3
_GUARD_SECONDS = 8.0


@dataclass(frozen=True)
class Patience:
    """How long the runner waits, in seconds."""

    start: float = 120.0
    """For all parts to serve."""
    grace: float = 30.0
    """For trainers that were asked to end."""
    limits: policy.Limits = field(default_factory=policy.Limits)


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    report: report.Report
    guilty_log: Path | None
    """The log of the part that ended the run; None where the trainers ended it."""
    interrupted: bool
    """A signal asked the runner to end."""
    trained: bool
    """The trainers were started."""


class Runner:
    """Runs a plan, once."""

    def __init__(
        self,
        plan: Plan,
        folders: Folders,
        env: Mapping[str, str],
        terminal: Terminal,
        patience: Patience,
    ) -> None:
        self._plan = plan
        self._folders = folders
        self._env = dict(env)
        self._terminal = terminal
        self._patience = patience
        self._events = events.Events()
        self._fleet = Fleet(plan, folders, env, patience.limits, self._events, self._say)
        self._monitor = Monitor(plan, terminal, self._fleet.parts, self._say)
        self._trainers: list[trainers.Trainer] = []
        self._trained: float | None = None
        """Seconds from the trainers' start to their end."""

    async def run(self) -> Result:
        """Run the plan to its end; no process of it is left then."""
        with Children() as children, events.handling(self._interrupted, self._suspended):
            # First of all, so that from here on the runner may be killed at any time.
            self._trainers += trainers.start_guards(
                children, self._plan, self._folders, self._env, self._terminal.is_live
            )
            watching = asyncio.ensure_future(self._monitor.run())
            try:
                status = await self._start_and_train(children)
            finally:
                if watching.done() and not watching.cancelled():
                    self._say(f"no live numbers: {watching.exception()!r} (please report)")
                watching.cancel()
                await self._take_down()
        return self._result(status)

    async def _start_and_train(self, children: Children) -> int:
        """The exit status."""
        began = time.monotonic()
        starting = asyncio.ensure_future(self._fleet.start(children, self._patience.start))
        news = asyncio.ensure_future(self._events.news.wait())
        try:
            await asyncio.wait({starting, news}, return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                starting.result()
        except PartFailedError as error:
            self._events.fail(error)
        finally:
            starting.cancel()
            news.cancel()
        if self._events.failure is not None:
            return EXIT_PART_FAILED
        if self._events.ending is not None:
            return 128 + self._events.ending.signal
        self._say(f"all parts serve after {time.monotonic() - began:.1f} s: starting the trainer")
        return await self._train()

    async def _train(self) -> int:
        for one in self._plan.inputs:
            credentials = Credentials.from_args(str(Files(self._folders).token(one)), {})
            address = self._fleet.addresses[one.name]
            self._monitor.dispatchers[one.name] = Dispatcher(address, credentials)
        self._monitor.trainers = self._trainers
        began = time.monotonic()
        self._trained = 0.0
        try:
            status = await attend.attend(
                self._trainers, self._events, self._patience.grace, self._say
            )
        finally:
            self._trained = time.monotonic() - began
        return status if self._events.failure is None else EXIT_PART_FAILED

    async def _take_down(self) -> None:
        self._events.closed = True
        for trainer in self._trainers:
            if trainer.child.alive:
                trainer.signal(signal.SIGKILL)
        # Numbers are no reason to leave processes behind.
        with contextlib.suppress(Exception):
            await self._monitor.look()
        await self._fleet.stop_all_but_dispatchers()
        with contextlib.suppress(Exception):
            await self._monitor.look(patient=self._events.failure is None)
        self._monitor.close()
        await self._fleet.stop()
        self._terminal.clear()
        guards = [trainer.child for trainer in self._trainers]
        for trainer in self._trainers:
            trainer.dismiss()
        if not await processes.ended_within(guards, _GUARD_SECONDS):
            await processes.stop(guards, 1.0)
        # What is left where somebody has killed a guard.
        guard.kill_run(self._folders.run)

    def _interrupted(self, number: int) -> None:
        if self._events.closed:
            self._fleet.kill()
        elif self._events.ending is None and self._monitor.trainers:
            self._say(
                f"{signal.Signals(number).name}: the trainer got it and has "
                f"{self._patience.grace:g} s to end; again for less"
            )
        self._events.interrupt(number)

    def _suspended(self) -> None:
        """Ctrl-Z: the trainers are in sessions of their own, where the terminal stops nobody."""
        self._terminal.clear()
        for trainer in self._trainers:
            trainer.signal(signal.SIGSTOP)
        os.kill(os.getpid(), signal.SIGSTOP)
        # Here again after SIGCONT.
        for trainer in self._trainers:
            trainer.signal(signal.SIGCONT)

    def _result(self, status: int) -> Result:
        parts = [
            report.Process(part.name, part.peak, part.restarts, tuple(part.addresses))
            for part in self._fleet.parts
        ]
        by_name = {part.name: part for part in parts}
        seconds = self._trained or 0.0
        inputs = []
        for one in self._plan.inputs:
            names = [self._plan.part("worker", one, index) for index in range(one.workers)]
            workers = [by_name[name] for name in names if name in by_name]
            tally = self._monitor.tallies[one.name]
            inputs.append(report.of_input(one.name, tally, workers, self._plan.trainers, seconds))
        commands = [report.Process(t.child.name, t.peak) for t in self._trainers]
        return Result(
            report.Report(
                status=status,
                cause=str(self._events.failure or ""),
                seconds=seconds,
                inputs=tuple(inputs),
                processes=(*parts, *commands),
            ),
            guilty_log=self._events.failure.log if self._events.failure else None,
            interrupted=bool(self._events.interrupted),
            trained=self._trained is not None,
        )

    def _say(self, text: str) -> None:
        self._terminal.message(f"distributed-input: {text}")
