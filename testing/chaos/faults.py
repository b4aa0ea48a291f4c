"""The action of each kind of fault on a fleet."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

from testing.chaos.fleet import Fleet, Worker
from testing.chaos.schedule import Fault


@dataclass(frozen=True)
class Applied:
    """A fault that was applied; `at` is time.monotonic()."""

    kind: str
    at: float
    note: str


class Injector:
    """Applies faults. Longer actions run in threads; `finish` waits for them."""

    def __init__(self, fleet: Fleet) -> None:
        self.applied: list[Applied] = []
        self.errors: list[BaseException] = []
        self._fleet = fleet
        self._finishing = threading.Event()  # end all delays
        self._threads: list[threading.Thread] = []
        self._starting = threading.Lock()  # every thread in the list has been started

    def inject(self, fault: Fault) -> None:
        """Apply a fault after its delay."""
        if fault.delay_ms:
            self._later(fault.delay_ms / 1000, lambda: self._apply(fault))
        else:
            self._apply(fault)

    def finish(self) -> None:
        """End all delays and wait for the remaining actions."""
        self._finishing.set()
        while (thread := self._next_thread()) is not None:
            thread.join(60)

    def _next_thread(self) -> threading.Thread | None:
        with self._starting:
            return self._threads.pop() if self._threads else None

    def _apply(self, fault: Fault) -> None:
        note = getattr(self, f"_{fault.kind}")(fault)
        if note is not None:
            self.applied.append(Applied(fault.kind, time.monotonic(), note))

    def _later(self, seconds: float, do: Callable[[], object]) -> None:
        def run() -> None:
            self._finishing.wait(seconds)
            try:
                do()
            except BaseException as error:  # noqa: BLE001 - the schedule fails with it
                self.errors.append(error)

        thread = threading.Thread(target=run, name="fault", daemon=True)
        with self._starting:
            self._threads.append(thread)
            thread.start()

    # The kinds of faults. None: there was no target.

    def _kill_worker(self, fault: Fault) -> str | None:
        worker = self._take(fault)
        if worker is None:
            return None
        self._fleet.kill(worker.process)
        self._schedule_restart(worker, fault)
        return f"{worker.process.name} restart: {fault.restart}"

    def _drain_worker(self, fault: Fault) -> str | None:
        worker = self._take(fault)
        if worker is None:
            return None
        self._fleet.drain(worker.process)  # it must end with status 0
        # The draining worker still uses its port.
        self._schedule_restart(worker, replace(fault, restart=fault.restart.replace("same", "new")))
        return worker.process.name

    def _stop_worker(self, fault: Fault) -> str | None:
        worker = self._take(fault)
        if worker is None:
            return None
        worker.process.signal(signal.SIGSTOP)

        def finish_stop() -> None:
            if fault.then_kill:
                self._fleet.kill(worker.process)
                self._schedule_restart(worker, fault)
            else:
                worker.process.signal(signal.SIGCONT)
                worker.busy = False

        self._later(fault.seconds, finish_stop)
        return f"{worker.process.name} for {fault.seconds:g} s, then_kill={fault.then_kill}"

    def _kill_all_workers(self, fault: Fault) -> str | None:
        with self._fleet.lock:
            workers = self._fleet.live_workers()
            for worker in workers:
                worker.busy = True
        for worker in workers:
            self._fleet.kill(worker.process)
        for worker in workers:
            self._schedule_restart(worker, fault)
        return f"{len(workers)} for {fault.seconds:g} s"

    def _add_worker(self, fault: Fault) -> str | None:
        self._later(0, self._fleet.add_worker)
        return "one more"

    def _cut_connection(self, fault: Fault) -> str | None:
        worker = self._any(fault)
        if worker is None or worker.proxy is None:
            return None
        worker.proxy.cut_after(fault.after_bytes)
        return f"{worker.process.name} after {fault.after_bytes} bytes"

    def _delay_connection(self, fault: Fault) -> str | None:
        worker = self._any(fault)
        if worker is None or worker.proxy is None:
            return None
        worker.proxy.hold()
        self._later(fault.seconds, worker.proxy.flow)
        return f"{worker.process.name} for {fault.seconds:g} s"

    def _kill_dispatcher(self, fault: Fault) -> str | None:
        with self._fleet.lock:
            if not self._fleet.dispatcher.alive:
                return None
            self._fleet.kill(self._fleet.dispatcher)
        self._later(fault.seconds, self._fleet.restart_dispatcher)
        return f"for {fault.seconds:g} s"

    def _kill_sidecar(self, fault: Fault) -> str | None:
        with self._fleet.lock:
            consumer = fault.target % len(self._fleet.sidecars)
            process = self._fleet.sidecars[consumer]
            if not process.alive:
                return None
            self._fleet.kill(process)

        def restart() -> None:
            with self._fleet.lock:
                if self._fleet.sidecars[consumer : consumer + 1] == [process]:
                    self._fleet.restart_sidecar(consumer)

        self._later(fault.seconds, restart)
        return f"of consumer {consumer} for {fault.seconds:g} s"

    # Workers.

    def _any(self, fault: Fault) -> Worker | None:
        live = self._fleet.live_workers()
        return live[fault.target % len(live)] if live else None

    def _take(self, fault: Fault) -> Worker | None:
        """Return a live worker and reserve it, so that no other fault uses it."""
        with self._fleet.lock:
            worker = self._any(fault)
            if worker is not None:
                worker.busy = True
            return worker

    def _schedule_restart(self, worker: Worker, fault: Fault) -> None:
        restart = fault.restart
        if restart == "never" and not self._fleet.live_workers():
            restart = "new"
        if restart == "same":
            self._later(fault.seconds, lambda: self._fleet.restart_worker(worker))
        elif restart == "new":
            self._later(fault.seconds, self._fleet.add_worker)
