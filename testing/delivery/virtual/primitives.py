"""Replacements of `threading` and `time` for simulated processes.

They have the parts of the modules that the product uses. A wait blocks the running task in virtual
time. `world.enter` makes one scheduler current; simulations do not overlap in one process.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any

from testing.delivery.virtual.scheduler import Scheduler, Task

EPOCH = 1_700_000_000.0
"""Wall-clock time at the start of a simulation."""


class _Current:
    """The scheduler that the primitives use."""

    scheduler: Scheduler


current = _Current()


def wait_for(waiters: deque[tuple[Task, int]], timeout: float | None, where: str) -> bool:
    """Block until a waiter is woken. Return False after `timeout` seconds."""
    scheduler = current.scheduler
    task = scheduler.current
    if task is None:
        raise RuntimeError(f"{where}: only a task may wait")
    task.token += 1
    token = task.token
    entry = (task, token)
    waiters.append(entry)
    if timeout is None:
        scheduler.block(where)
        return True
    expired = False

    def expire() -> None:
        nonlocal expired
        if task.token == token:
            expired = True
            scheduler.wake(task, token)

    scheduler.after(max(0.0, timeout), expire)
    scheduler.block(where)
    if expired:
        try:
            waiters.remove(entry)
        except ValueError:
            pass
    return not expired


def wake_one(waiters: deque[tuple[Task, int]]) -> bool:
    """Wake the first waiter that still waits."""
    while waiters:
        task, token = waiters.popleft()
        if task.token == token and task.alive:
            current.scheduler.wake(task, token)
            return True
    return False


class Lock:
    """threading.Lock."""

    __slots__ = ("_locked", "_waiters")

    def __init__(self) -> None:
        self._locked = False
        self._waiters: deque[tuple[Task, int]] = deque()

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        scheduler = current.scheduler
        if scheduler.current is not None:
            scheduler.preempt()
        if not self._locked:
            self._locked = True
            return True
        if not blocking:
            return False
        deadline = None if timeout < 0 else scheduler.now + timeout
        while self._locked:
            left = None if deadline is None else deadline - scheduler.now
            if left is not None and left <= 0:
                return False
            wait_for(self._waiters, left, "Lock.acquire")
        self._locked = True
        return True

    def release(self, *_: object) -> None:
        self._locked = False
        if self._waiters:
            wake_one(self._waiters)

    def locked(self) -> bool:
        return self._locked

    __enter__, __exit__ = acquire, release


class RLock(Lock):
    """threading.RLock."""

    __slots__ = ("_count", "_owner")

    def __init__(self) -> None:
        super().__init__()
        self._owner: Task | None = None
        self._count = 0

    def acquire(self, blocking: bool = True, timeout: float = -1) -> bool:
        task = current.scheduler.current
        if self._count and self._owner is task:
            self._count += 1
            return True
        if not Lock.acquire(self, blocking, timeout):
            return False
        self._owner, self._count = task, 1
        return True

    def release(self, *_: object) -> None:
        self._count -= 1
        if not self._count:
            self._owner = None
            Lock.release(self)

    __enter__, __exit__ = acquire, release

    def release_all(self) -> int:
        """Release the lock however often it is held; return how often that was."""
        count, self._count = self._count, 1
        self.release()
        return count

    def acquire_all(self, count: int) -> None:
        self.acquire()
        self._count = count


class Condition:
    """threading.Condition."""

    __slots__ = ("_lock", "_waiters", "acquire", "release")

    def __init__(self, lock: Lock | RLock | None = None) -> None:
        self._lock = lock if lock is not None else RLock()
        self._waiters: deque[tuple[Task, int]] = deque()
        self.acquire, self.release = self._lock.acquire, self._lock.release

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()

    def wait(self, timeout: float | None = None) -> bool:
        lock = self._lock
        held = 0
        if isinstance(lock, RLock):
            held = lock.release_all()
        else:
            lock.release()
        try:
            return wait_for(self._waiters, timeout, "Condition.wait")
        finally:
            if isinstance(lock, RLock):
                lock.acquire_all(held)
            else:
                lock.acquire()

    def wait_for(self, predicate: Callable[[], Any], timeout: float | None = None) -> Any:
        deadline = None if timeout is None else current.scheduler.now + timeout
        while not (result := predicate()):
            left = None if deadline is None else deadline - current.scheduler.now
            if left is not None and left <= 0:
                break
            self.wait(left)
        return result

    def notify(self, n: int = 1) -> None:
        for _ in range(n):
            if not wake_one(self._waiters):
                return

    def notify_all(self) -> None:
        while wake_one(self._waiters):
            pass


class Event:
    """threading.Event."""

    __slots__ = ("_set", "_waiters")

    def __init__(self) -> None:
        self._set = False
        self._waiters: deque[tuple[Task, int]] = deque()

    def is_set(self) -> bool:
        return self._set

    def set(self) -> None:
        self._set = True
        while wake_one(self._waiters):
            pass

    def clear(self) -> None:
        self._set = False

    def wait(self, timeout: float | None = None) -> bool:
        if not self._set:
            wait_for(self._waiters, timeout, "Event.wait")
        else:
            current.scheduler.preempt()
        return self._set


class Semaphore:
    """threading.Semaphore and BoundedSemaphore."""

    def __init__(self, value: int = 1) -> None:
        self._value = value
        self._changed = Condition()

    def acquire(self, blocking: bool = True, timeout: float | None = None) -> bool:
        with self._changed:
            if not self._value and not blocking:
                return False
            if not self._changed.wait_for(lambda: self._value, timeout):
                return False
            self._value -= 1
            return True

    def release(self) -> None:
        with self._changed:
            self._value += 1
            self._changed.notify()

    def __enter__(self) -> bool:
        return self.acquire()

    def __exit__(self, *_: object) -> None:
        self.release()


class Thread:
    """threading.Thread, as a task of the process that starts it."""

    def __init__(
        self,
        group: None = None,
        target: Callable[..., object] | None = None,
        name: str | None = None,
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
        *,
        daemon: bool | None = None,
    ) -> None:
        self.name = name or "thread"
        self.daemon = daemon
        self._target, self._args, self._kwargs = target, args, kwargs or {}
        self._task: Task | None = None

    def start(self) -> None:
        scheduler = current.scheduler
        assert scheduler.current is not None
        process = scheduler.current.process
        self._task = process.spawn(self.run, self.name)
        process.storage[self._task] = self
        scheduler.preempt()

    def run(self) -> None:
        try:
            if self._target is not None:
                self._target(*self._args, **self._kwargs)
        finally:
            del self._target, self._args, self._kwargs
            if self._task is not None:
                self._task.process.storage.pop(self._task, None)

    def is_alive(self) -> bool:
        return self._task is not None and self._task.alive

    def join(self, timeout: float | None = None) -> None:
        task = self._task
        if task is None or not task.alive:
            return
        waiters: deque[tuple[Task, int]] = deque()
        task.joiners.append(lambda: wake_one(waiters))
        wait_for(waiters, timeout, f"join {self.name}")


class Timer(Thread):
    """threading.Timer."""

    def __init__(self, interval: float, function: Callable[[], object]) -> None:
        super().__init__(name="timer")
        self._interval, self._function, self._finished = interval, function, Event()

    def cancel(self) -> None:
        self._finished.set()

    def run(self) -> None:
        if not self._finished.wait(self._interval):
            self._function()


class _MainThread:
    name = "main"


_MAIN = _MainThread()


class SimThreading:
    """The module `threading`."""

    Lock, RLock, Condition, Event = Lock, RLock, Condition, Event
    Semaphore = BoundedSemaphore = Semaphore
    Thread, Timer = Thread, Timer

    @staticmethod
    def current_thread() -> Any:
        task = current.scheduler.current
        assert task is not None
        return task.process.storage.get(task, _MAIN)

    @staticmethod
    def get_ident() -> int:
        task = current.scheduler.current
        return task.number if task is not None else 0


class SimTime:
    """The module `time`."""

    @staticmethod
    def process_time() -> float:
        """Return 0: the datasets wait and do not compute."""
        return 0.0

    @staticmethod
    def monotonic() -> float:
        scheduler = current.scheduler
        scheduler.now += 1e-6
        return scheduler.now

    perf_counter = monotonic

    @staticmethod
    def time() -> float:
        return EPOCH + current.scheduler.now

    @staticmethod
    def time_ns() -> int:
        return int(SimTime.time() * 1e9)

    @staticmethod
    def sleep(seconds: float) -> None:
        current.scheduler.sleep(seconds)
