"""Looks at a run twice a second and says how it goes."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence

from distributed_input.runner.display import display, logfiles
from distributed_input.runner.display.asking import Dispatcher
from distributed_input.runner.display.stats import Status, Tally
from distributed_input.runner.display.terminal import Terminal
from distributed_input.runner.plan import Plan
from distributed_input.runner.processes.supervise import Part, State, awaited
from distributed_input.runner.processes.trainers import Trainer

_LOOK_SECONDS = 0.5
_PROGRESS_SECONDS = 10.0
_ASK_SECONDS = 1.0
_PATIENT_SECONDS = 4.0
"""More than what a channel takes to try again."""
_LARGEST_LOG = 16 << 20


class Monitor:
    """What is known of a run's inputs, and the lines about it."""

    def __init__(
        self, plan: Plan, terminal: Terminal, parts: Sequence[Part], say: Callable[[str], None]
    ) -> None:
        self.tallies: Mapping[str, Tally] = {one.name: Tally() for one in plan.inputs}
        self.dispatchers: dict[str, Dispatcher] = {}
        """By input, once their addresses are known."""
        self.trainers: Sequence[Trainer] = ()
        """Once they are started."""
        self._parts = parts
        self._plan = plan
        self._terminal = terminal
        self._say = say
        self._began = time.monotonic()
        self._progress = self._began

    async def run(self) -> None:
        """Look and tell, until cancelled."""
        while True:
            await self.look()
            self._tell(time.monotonic())
            await asyncio.sleep(_LOOK_SECONDS)

    async def look(self, *, patient: bool = False) -> None:
        """Ask the dispatchers, and note the memory of all processes.

        `patient`: wait for dispatchers that were just restarted.
        """
        for part in self._parts:
            part.sample_memory()
            logfiles.trim(part.log, _LARGEST_LOG)
        for trainer in self.trainers:
            trainer.sample_memory()
        names = list(self.dispatchers)
        answers = await asyncio.gather(
            *(self._ask(name, patient and self.tallies[name].answered) for name in names)
        )
        now = time.monotonic()
        for name, answer in zip(names, answers, strict=True):
            self.tallies[name].add(answer, now)

    async def _ask(self, name: str, patient: bool) -> Status | None:
        timeout = _PATIENT_SECONDS if patient else _ASK_SECONDS
        return await self.dispatchers[name].status_or_none(timeout, patient=patient)

    def close(self) -> None:
        """Close the channels to the dispatchers."""
        for dispatcher in self.dispatchers.values():
            dispatcher.close()

    def _tell(self, now: float) -> None:
        if self._terminal.is_live:
            self._terminal.show(self._lines(now))
        elif now - self._progress >= _PROGRESS_SECONDS:
            self._progress = now
            for line in self._lines(now):
                self._say(line)

    def _lines(self, now: float) -> list[str]:
        if not self.trainers:
            return [f"{now - self._began:.0f} s, waiting for: {awaited(self._parts) or 'trainer'}"]
        return [
            display.live(one.name, self.tallies[one.name], one.workers) + self._down(one.name)
            for one in self._plan.inputs
        ]

    def _down(self, name: str) -> str:
        """Parts of an input that are being restarted."""
        down = [
            part.name
            for part in self._parts
            if part.state is State.BACKING_OFF and part.of in ("", name)
        ]
        return f" | restarting: {', '.join(down)}" if down else ""
