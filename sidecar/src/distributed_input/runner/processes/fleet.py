"""All of our own processes of a run: dispatchers, workers, sidecars. Started and stopped here."""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import signal
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from distributed_input.runner import plan as planning
from distributed_input.runner.folders import Folders
from distributed_input.runner.plan import Input, Plan
from distributed_input.runner.processes import children as processes
from distributed_input.runner.processes import policy
from distributed_input.runner.processes.children import Children
from distributed_input.runner.processes.events import Events
from distributed_input.runner.processes.supervise import Part, PartFailedError, awaited

_STOP_SECONDS = planning.GRACE_SECONDS + 2.0


class Fleet:
    """The parts of one run, each kept alive by a task of its own."""

    def __init__(
        self,
        plan: Plan,
        folders: Folders,
        env: Mapping[str, str],
        limits: policy.Limits,
        events: Events,
        say: Callable[[str], None],
    ) -> None:
        self.parts: list[Part] = []
        self.addresses: dict[str, str] = {}
        """host:port of the inputs' dispatchers, once they serve."""
        self._plan = plan
        self._folders = folders
        self._files = planning.Files(folders)
        self._env = env
        self._limits = limits
        self._events = events
        self._say = say
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self, children: Children, seconds: float) -> None:
        """Start everything and wait until all of it serves.

        Raises PartFailedError naming what does not serve after `seconds`.
        """
        deadline = time.monotonic() + seconds
        plan = self._plan
        self._files.tokens().mkdir(mode=0o700)
        for one in plan.inputs:
            _write_private(self._files.token(one), secrets.token_urlsafe(32))
        _write_private(self._files.config(), json.dumps(planning.sidecar_config(plan)))
        dispatchers = [self._dispatcher(one) for one in plan.inputs]
        await self._serve(dispatchers, children, deadline, seconds)
        for one, part in zip(plan.inputs, dispatchers, strict=True):
            self.addresses[one.name] = str(part.address)
        others = [self._worker(one, i) for one in plan.inputs for i in range(one.workers)]
        for one in plan.inputs:
            others += self._stock(one)
        others += [self._sidecar(consumer) for consumer in range(plan.trainers)]
        await self._serve(others, children, deadline, seconds)

    async def stop(self) -> None:
        """End what still lives; nothing is restarted any more."""
        await self._stop(self.parts)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def stop_all_but_dispatchers(self) -> None:
        """End the others: the dispatchers still hear their last numbers."""
        listeners = {self._plan.part("dispatcher", one) for one in self._plan.inputs}
        await self._stop([part for part in self.parts if part.name not in listeners])

    def kill(self) -> None:
        """SIGKILL what still lives."""
        for part in self.parts:
            if part.child is not None:
                part.child.signal(signal.SIGKILL)

    async def _stop(self, parts: Sequence[Part]) -> None:
        living = [child for child in [part.stop() for part in parts] if child is not None]
        await processes.stop(living, _STOP_SECONDS)

    async def _serve(
        self, parts: Sequence[Part], children: Children, deadline: float, seconds: float
    ) -> None:
        self.parts += parts
        self._tasks += [asyncio.ensure_future(self._supervise(p, children)) for p in parts]
        serving = [asyncio.ensure_future(part.ready.wait()) for part in parts]
        try:
            left = max(0.0, deadline - time.monotonic())
            _, missing = await asyncio.wait(serving, timeout=left)
        finally:
            for one in serving:
                one.cancel()
        if missing:
            late = next(part for part in parts if not part.ready.is_set())
            cause = f"gave up after {seconds:g} s, waiting for {awaited(self.parts)}"
            raise PartFailedError(late.name, f"{cause} (more time: --start-timeout)", late.log)

    async def _supervise(self, part: Part, children: Children) -> None:
        try:
            await part.run(children, self._say)
        except PartFailedError as error:
            self._events.fail(error)
        except OSError as error:
            cause = f"cannot start {part.name}: {error}"
            self._events.fail(PartFailedError(part.name, cause, part.log))

    def _part(self, name: str, of: str, command: Callable[[str | None], Sequence[str]]) -> Part:
        return Part(
            name=name,
            of=of,
            command=command,
            env=planning.part_env(self._env, self._folders.run, name, os.getpid()),
            log=self._folders.log(name),
            ready_file=self._files.ready(name),
            # Not the user's folder: a file there could stand for a module of ours.
            cwd=self._folders.path,
            limits=self._limits,
        )

    def _dispatcher(self, one: Input) -> Part:
        first = f"127.0.0.1:{one.port}"
        return self._part(
            self._plan.part("dispatcher", one),
            one.name,
            # After a crash where it was before: everyone knows that address.
            lambda last: planning.dispatcher_command(self._plan, self._files, one, last or first),
        )

    def _worker(self, one: Input, index: int) -> Part:
        address = self.addresses[one.name]
        part = self._part(
            self._plan.part("worker", one, index),
            one.name,
            lambda _: planning.worker_command(self._plan, self._files, one, index, address),
        )
        part.env = planning.worker_env(part.env)
        part.cwd = None  # the user's code may name files relative to the user's folder
        return part

    def _stock(self, one: Input) -> list[Part]:
        """TensorFlow's own dispatcher and workers, where the input has them."""
        stock = one.stock
        if stock is None:
            return []
        self._files.journal(one).mkdir(mode=0o700, parents=True)
        dispatcher = self._part(
            self._plan.part("tf-data-dispatcher", one),
            one.name,
            lambda _: planning.stock_dispatcher_command(self._plan, self._files, one, stock),
        )
        workers = [
            self._part(
                self._plan.part("tf-data-worker", one, index),
                one.name,
                lambda _, index=index: planning.stock_worker_command(  # type: ignore[misc]
                    self._plan, self._files, one, stock, index
                ),
            )
            for index in range(one.workers)
        ]
        for part in (dispatcher, *workers):
            part.env = planning.worker_env(part.env)
            part.cwd = None if part is not dispatcher else part.cwd
        return [dispatcher, *workers]

    def _sidecar(self, consumer: int) -> Part:
        self._files.shared(consumer).mkdir(mode=0o700)
        return self._part(
            self._plan.part("sidecar", index=consumer),
            "",
            lambda _: planning.sidecar_command(self._plan, self._files, consumer, self.addresses),
        )


def _write_private(path: Path, text: str) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with os.fdopen(handle, "w", encoding="utf-8") as file:
        file.write(text)
