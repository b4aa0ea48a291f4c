"""The progress display: samples a run twice a second and prints its state."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from distributed_input.api.errors import DistributedInputError
from distributed_input.runner import process_logs
from distributed_input.runner.display import format as formatting
from distributed_input.runner.display.stats import InputStats, StatusSample
from distributed_input.runner.display.status_client import StatusClient
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.plan import Plan
from distributed_input.runner.processes.supervised_process import (
    ProcessState,
    SupervisedProcess,
    unready,
)
from distributed_input.runner.processes.trainers import Trainer

_SAMPLE_SECONDS = 0.5
_PROGRESS_SECONDS = 10.0
_CALL_SECONDS = 1.0
_RESTART_CALL_SECONDS = 4.0
"""Longer than a channel's delay between connection attempts."""
_MAX_LOG_BYTES = 16 << 20


@dataclass
class ProgressMonitor:
    """Collects the statistics of a run, and prints one line per input."""

    plan: Plan
    terminal: Terminal
    processes: Sequence[SupervisedProcess]
    log: Callable[[str], None]
    _clients: Mapping[str, StatusClient] = field(default_factory=dict)
    _trainers: Sequence[Trainer] = ()

    def __post_init__(self) -> None:
        self.stats = {one.name: InputStats() for one in self.plan.inputs}
        self._started = self._logged = time.monotonic()

    def attach(self, clients: Mapping[str, StatusClient], trainers: Sequence[Trainer]) -> None:
        """Sample dispatchers (by input name) and trainers from now on."""
        self._clients = clients
        self._trainers = trainers

    async def run(self) -> None:
        """Sample and print until cancelled."""
        while True:
            await self.sample()
            self._print(time.monotonic())
            await asyncio.sleep(_SAMPLE_SECONDS)

    async def sample(self, *, wait_for_restarts: bool = False) -> None:
        """Request the dispatchers' status, and measure the memory of all processes.

        With `wait_for_restarts`, wait for dispatchers that have just been restarted.
        """
        for process in self.processes:
            process.sample_memory()
            process_logs.trim(process.log, _MAX_LOG_BYTES)
        for trainer in self._trainers:
            trainer.sample_memory()
        names = list(self._clients)
        answers = await asyncio.gather(
            *(self._status(name, wait_for_restarts and self.stats[name].answered) for name in names)
        )
        now = time.monotonic()
        for name, answer in zip(names, answers, strict=True):
            self.stats[name].add(answer, now)

    async def _status(self, name: str, wait_for_ready: bool) -> StatusSample | None:
        timeout = _RESTART_CALL_SECONDS if wait_for_ready else _CALL_SECONDS
        status = self._clients[name].status
        try:
            return await asyncio.to_thread(status, timeout, wait_for_ready=wait_for_ready)
        except DistributedInputError:
            return None

    def close(self) -> None:
        """Close the channels to the dispatchers."""
        for client in self._clients.values():
            client.close()

    def _print(self, now: float) -> None:
        if self.terminal.is_live:
            self.terminal.show(self._lines(now))
        elif now - self._logged >= _PROGRESS_SECONDS:
            self._logged = now
            for line in self._lines(now):
                self.log(line)

    def _lines(self, now: float) -> list[str]:
        if not self._trainers:
            missing = unready(self.processes) or "trainer"
            return [f"{now - self._started:.0f} s, waiting for: {missing}"]
        return [
            formatting.progress_line(one.name, self.stats[one.name], one.workers)
            + self._restarting(one.name)
            for one in self.plan.inputs
        ]

    def _restarting(self, name: str) -> str:
        """Return the processes of an input that wait for their restart."""
        waiting = [
            process.name
            for process in self.processes
            if process.state is ProcessState.BACKING_OFF and process.input_name in ("", name)
        ]
        return f" | restarting: {', '.join(waiting)}" if waiting else ""
