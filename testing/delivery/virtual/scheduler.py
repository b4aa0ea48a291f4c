"""The scheduler of a simulation: tasks of simulated processes, virtual time, seeded choices.

Exactly one task runs at a time. A task is a greenlet, so that a switch costs less than a
microsecond and a crashed process's tasks can be ended. Tasks switch only where they block, and at
points where the seed decides so. Virtual time advances when no task can run; each switch and each
reading of the clock adds a little, so that a loop that polls the clock ends.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable
from typing import Any

import greenlet

SWITCH_SECONDS = 5e-6
START = 1000.0
"""Virtual time at the start."""
_HASH_MASK = (1 << 61) - 1


class Deadlock(Exception):
    """No task can run, and no timer is left."""


class TimedOut(Exception):
    """The simulation used more switches or more virtual time than it may."""


class SimProcess:
    """One simulated process: a set of tasks that end together.

    Attributes:
        alive: False after its end. Its endpoints then do nothing.
        paused: its tasks do not run, as after SIGSTOP.
        endpoints: sockets, servers and channels to break when it ends.
        storage: values that a real process would keep in module globals.
    """

    def __init__(self, scheduler: Scheduler, name: str, pid: int) -> None:
        self.name, self.pid = name, pid
        self.alive, self.paused = True, False
        self.endpoints: dict[Any, None] = {}
        self.storage: dict[Any, Any] = {}
        self._scheduler = scheduler
        self._tasks: dict[Task, None] = {}
        self._parked: list[Task] = []

    def __repr__(self) -> str:
        return self.name

    def spawn(self, function: Callable[[], object], name: str) -> Task:
        """Start a task."""
        return self._scheduler.spawn(self, function, name)

    def pause(self) -> None:
        """Stop all tasks until `resume`."""
        if self.alive and not self.paused:
            self.paused = True
            self._scheduler.note(self, "paused")
            for endpoint in list(self.endpoints):
                endpoint.process_paused()

    def resume(self) -> None:
        """Let the tasks run again."""
        if self.alive and self.paused:
            self.paused = False
            self._scheduler.note(self, "resumed")
            parked, self._parked = self._parked, []
            for task in parked:
                self._scheduler.ready.append(task)
            for endpoint in list(self.endpoints):
                endpoint.process_resumed()

    def kill(self) -> None:
        """End all tasks at once. Nothing that they do afterwards has an effect outside."""
        if not self.alive:
            return
        self.alive = False
        self.paused = False
        self._scheduler.note(self, "killed")
        for endpoint in list(self.endpoints):
            endpoint.process_died()
        self.endpoints.clear()
        self._scheduler.reap(self, self._tasks)
        self.storage.clear()


class Task:
    """A thread of a simulated process."""

    __slots__ = (
        "alive",
        "function",
        "glet",
        "joiners",
        "name",
        "number",
        "process",
        "token",
        "where",
    )

    def __init__(
        self, process: SimProcess, name: str, number: int, function: Callable[[], object]
    ) -> None:
        self.process, self.name, self.number = process, name, number
        self.function: Callable[[], object] | None = function  # None once it runs
        self.glet: Any = None
        self.alive = True
        self.token = 0  # increases with each wait, so that a late timer does nothing
        self.where = ""
        self.joiners: list[Callable[[], object]] = []

    def __repr__(self) -> str:
        return f"{self.process.name}/{self.name}"


class Scheduler:
    """Runs the tasks of all processes in an order that the seed decides.

    Args:
        seed: seed of all choices.
        preempt: probability that a task is interrupted at a point where it may be.
        stall: probability that an interrupted task does not run for some virtual time.
        trace: receives the lines of the event trace; None to drop them.
    """

    def __init__(
        self,
        seed: int,
        preempt: float = 0.0,
        stall: float = 0.0,
        trace: Callable[[str], None] | None = None,
        max_switches: int = 2_000_000,
        max_seconds: float = 10_000.0,
    ) -> None:
        self.dice = random.Random(f"schedule {seed}")
        self.random = self.dice.random
        self.now = START
        self.ready: list[Task] = []
        self.current: Task | None = None
        self.processes: list[SimProcess] = []
        self.problems: list[str] = []
        self.hash = 0
        self.switches = 0
        self.verbose = trace is not None
        self._trace = trace
        self._preempt, self._stall = preempt, stall
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._numbers = 0  # of tasks
        self._timer_numbers = 0
        self._hub = greenlet.getcurrent()
        self._max_switches, self._end = max_switches, self.now + max_seconds

    # Processes and tasks.

    def process(self, name: str) -> SimProcess:
        """Create a process without tasks."""
        created = SimProcess(self, name, 1000 + len(self.processes))
        self.processes.append(created)
        return created

    def spawn(self, process: SimProcess, function: Callable[[], object], name: str) -> Task:
        """Start a task of a process."""
        self._numbers += 1
        task = Task(process, name, self._numbers, function)
        if not process.alive:
            raise greenlet.GreenletExit
        process._tasks[task] = None
        task.glet = _idle.pop() if _idle else greenlet.greenlet(_serve)
        task.glet.parent = self._hub
        self.ready.append(task)
        return task

    def run_task(self, task: Task) -> None:
        """Run a task to its end. Called in its greenlet."""
        function, task.function = task.function, None
        assert function is not None
        try:
            function()
        except greenlet.GreenletExit:
            pass
        except BaseException as error:  # noqa: BLE001  reported as a problem
            self._task_failed(task, error)
        finally:
            task.alive = False
            task.process._tasks.pop(task, None)
            for wake in task.joiners:
                wake()
            task.joiners.clear()

    def _task_failed(self, task: Task, error: BaseException) -> None:
        if task.process.alive:
            import traceback

            text = "".join(traceback.format_exception(error))
            self.problems.append(f"task {task} failed: {text}")

    def reap(self, process: SimProcess, tasks: dict[Task, None]) -> None:
        """End the tasks of a dead process."""
        dead = set(tasks)
        process._parked.clear()
        before = self.current
        own = before if before in tasks else None
        for task in list(tasks):
            if task is own:
                continue
            self.current = task
            task.token += 1
            if task.function is not None:  # it never ran
                _idle.append(task.glet)
                task.alive = False
                continue
            for _ in range(50):
                if not task.alive:
                    break
                task.glet.parent = greenlet.getcurrent()
                task.glet.throw()
            else:
                self.problems.append(f"task {task} survives its process")
            task.alive = False
        tasks.clear()
        # Some may have become ready when the locks of others were released.
        self.ready = [task for task in self.ready if task not in dead]
        self.current = before
        if own is not None:
            raise greenlet.GreenletExit

    # Switching. Called by the running task.

    def block(self, where: str) -> None:
        """Let other tasks run until `wake` is called with this task's token."""
        task = self.current
        if task is None:
            raise RuntimeError(f"the hub may not block in {where}")
        if not task.process.alive:
            raise greenlet.GreenletExit
        task.where = where
        self._hub.switch()

    def preempt(self) -> None:
        """Perhaps let other tasks run."""
        if self._preempt and self.random() < self._preempt:
            self._interrupt()

    def _interrupt(self) -> None:
        task = self.current
        if task is None or not task.process.alive:
            return
        task.where = "preempted"
        if self._stall and self.random() < self._stall:
            self.sleep(self.dice.choice((0.0005, 0.01, 0.3, 1.2)))
            return
        self.ready.append(task)
        self._hub.switch()

    def sleep(self, seconds: float) -> None:
        """Block the running task for virtual time."""
        task = self.current
        assert task is not None
        task.token += 1
        self.timer(seconds, task, task.token)
        self.block("sleep")

    def wake(self, task: Task, token: int) -> None:
        """Make a blocked task ready, unless it was woken before."""
        if task.token == token and task.alive:
            task.token += 1
            self.ready.append(task)

    def timer(self, seconds: float, task: Task, token: int) -> None:
        """Wake a task after virtual time."""
        self.at(self.now + max(0.0, seconds), lambda: self.wake(task, token))

    def at(self, when: float, action: Callable[[], None]) -> None:
        """Call `action` in the hub at a virtual time. It must not block."""
        self._timer_numbers += 1
        heapq.heappush(self._timers, (when, self._timer_numbers, action))

    def after(self, seconds: float, action: Callable[[], None]) -> None:
        """Call `action` in the hub after virtual time."""
        self.at(self.now + seconds, action)

    # The loop.

    def run(self, until: Callable[[], bool]) -> None:
        """Run tasks until `until` returns True.

        Raises:
            Deadlock: no task can run.
            TimedOut: too many switches or too much virtual time.
        """
        timers, mix, random = self._timers, self.hash, self.random
        while True:
            ready = self.ready
            while timers and timers[0][0] <= self.now:
                heapq.heappop(timers)[2]()
                ready = self.ready
            if not ready:
                if until():
                    break
                if not timers:
                    raise Deadlock(self.stacks())
                self.now = max(self.now, timers[0][0])
                continue
            count = len(ready)
            at = int(random() * count) if count > 1 else 0
            task = ready[at]
            ready[at] = ready[-1]
            ready.pop()
            if task.process.paused:
                task.process._parked.append(task)
                continue
            self.switches += 1
            self.now += SWITCH_SECONDS
            mix = (mix * 1_000_003 + task.number) & _HASH_MASK
            self.hash = mix
            self.current = task
            task.glet.switch(task)
            self.current = None
            if until():
                break
            if self.switches > self._max_switches or self.now > self._end:
                raise TimedOut(f"{self.switches} switches, {self.now:.0f} s\n{self.stacks()}")
        self.hash = (mix * 1_000_003 + int(self.now * 1e6)) & _HASH_MASK

    def close(self) -> None:
        """End all processes."""
        self.current = None
        self._preempt = 0.0
        for process in self.processes:
            process.kill()
        self._timers.clear()
        self.ready.clear()

    # Reports.

    def note(self, process: SimProcess | None, text: str) -> None:
        """Add a line to the event trace."""
        if self._trace is not None:
            self._trace(f"{self.now - START:12.6f} {process.name if process else '-':14} {text}")

    def stacks(self) -> str:
        """Return where each task waits."""
        lines = []
        for process in self.processes:
            for task in process._tasks:
                lines.append(f"  {task} in {task.where}{_frames(task)}")
        return "\n".join(lines)


_idle: list[greenlet.greenlet] = []
"""Greenlets whose tasks have ended. To create one costs more than a switch between tasks."""


def _serve(task: Task) -> None:
    """Run one task after another in a greenlet. Between them the parent runs."""
    own = greenlet.getcurrent()
    while True:
        task.process._scheduler.run_task(task)
        del task
        _idle.append(own)
        assert own.parent is not None
        task = own.parent.switch()


def _frames(task: Task) -> str:
    frame = task.glet.gr_frame
    found: list[str] = []
    for _ in range(40):
        if frame is None or len(found) == 6:
            break
        name = frame.f_code.co_filename
        if "/testing/delivery/" not in name:
            short = name.rsplit("/", 1)[-1]
            found.append(f"{short}:{frame.f_lineno} {frame.f_code.co_name}")
        frame = frame.f_back
    return "".join(f"\n      {line}" for line in found)
