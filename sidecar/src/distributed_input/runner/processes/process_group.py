"""All processes of a run except the trainers: dispatchers, workers and sidecars."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from distributed_input.runner import plan as planning
from distributed_input.runner.folders import RunFolders
from distributed_input.runner.plan import Plan, PlannedProcess
from distributed_input.runner.processes import children as child_processes
from distributed_input.runner.processes.children import Children
from distributed_input.runner.processes.run_events import RunEvents
from distributed_input.runner.processes.supervised_process import (
    ProcessFailedError,
    SupervisedProcess,
    unready,
)

_STOP_SECONDS = planning.GRACE_SECONDS + 2.0


@dataclass
class ProcessGroup:
    """The supervised processes of one run. A task of its own restarts each of them."""

    plan: Plan
    folders: RunFolders
    env: Mapping[str, str]
    events: RunEvents
    log: Callable[[str], None]
    processes: list[SupervisedProcess] = field(default_factory=list)
    _tasks: list[asyncio.Task[None]] = field(default_factory=list)
    _starts: Iterator[int] = field(default_factory=itertools.count)

    async def start(self, children: Children, seconds: float) -> None:
        """Start all processes and wait until they are ready.

        Raises:
            ProcessFailedError: names the processes that are not ready after `seconds`.
        """
        deadline = time.monotonic() + seconds
        plan = self.plan
        self.folders.tokens.mkdir(mode=0o700)
        self.folders.sockets.mkdir(mode=0o700)
        for one in plan.inputs:
            _write_private(self.folders.token(one.name), secrets.token_urlsafe(32))
            if one.tf_data_service is not None:
                self.folders.journal(one.name).mkdir(mode=0o700, parents=True)
        for trainer in range(plan.trainers):
            self.folders.trainer(trainer).mkdir(mode=0o700)
        _write_private(self.folders.config, json.dumps(planning.sidecar_config(plan)))
        for stage in (planning.dispatchers, planning.other_processes):
            processes = [self._process(one) for one in stage(plan, self.folders)]
            await self._start_until_ready(processes, children, deadline, seconds)

    async def stop(self) -> None:
        """End all processes and disable restarts."""
        await self._stop(self.processes)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop_all_but_dispatchers(self) -> None:
        """End the others, so that the dispatchers receive their last statistics."""
        names = {self.plan.process_name("dispatcher", one) for one in self.plan.inputs}
        await self._stop([process for process in self.processes if process.name not in names])

    def kill(self) -> None:
        """Send SIGKILL to all processes."""
        for process in self.processes:
            if process.child is not None:
                process.child.signal(signal.SIGKILL)

    async def _stop(self, processes: Sequence[SupervisedProcess]) -> None:
        live = [child for child in [process.stop() for process in processes] if child is not None]
        await child_processes.stop(live, _STOP_SECONDS)

    async def _start_until_ready(
        self,
        processes: Sequence[SupervisedProcess],
        children: Children,
        deadline: float,
        seconds: float,
    ) -> None:
        self.processes += processes
        self._tasks += [asyncio.ensure_future(self._supervise(p, children)) for p in processes]
        waiting = [asyncio.ensure_future(process.ready.wait()) for process in processes]
        try:
            left = max(0.0, deadline - time.monotonic())
            _, missing = await asyncio.wait(waiting, timeout=left)
        finally:
            for one in waiting:
                one.cancel()
        if missing:
            late = next(process for process in processes if not process.ready.is_set())
            cause = f"not ready after {seconds:g} s: waiting for {unready(self.processes)}"
            raise ProcessFailedError(
                f"{cause}. To wait longer, set --start-timeout (in Python: timeout)",
                late.log,
            )

    async def _supervise(self, process: SupervisedProcess, children: Children) -> None:
        try:
            await process.run(children, self.log)
        except ProcessFailedError as error:
            self.events.fail(error)
        except OSError as error:
            cause = f"cannot start {process.name}: {error}"
            self.events.fail(ProcessFailedError(cause, process.log))

    def _process(self, one: PlannedProcess) -> SupervisedProcess:
        env = planning.process_env(self.env, self.folders.run, one.name, os.getpid())
        return SupervisedProcess(
            name=one.name,
            input_name=one.input_name,
            command=lambda: one.command(next(self._starts)),
            env={**env, **one.env},
            log=self.folders.log(one.name),
            ready_file=self.folders.ready(one.name),
            # Not the user's folder, where a file could shadow one of our modules.
            cwd=None if one.in_users_folder else self.folders.path,
        )


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
