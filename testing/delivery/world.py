"""The processes of one simulated schedule: a dispatcher, workers and sidecars.

`World` has the interface of `testing.chaos.fleet.Fleet`, so that the faults of `testing.chaos` act
on it too.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import logging
import shutil
import signal
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from distributed_input.api.proto import dispatcher_pb2, worker_pb2
from distributed_input.dispatcher.clock import TICK_SECONDS, RunningClock
from distributed_input.dispatcher.limits import DispatcherLimits
from distributed_input.dispatcher.service import DESCRIPTOR, DispatcherService
from distributed_input.dispatcher.state import DispatcherState
from distributed_input.link.reachability import ANSWER_SECONDS
from distributed_input.link.stubs import Stub, service_handler
from testing.chaos.fleet import INPUT, spec
from testing.delivery.dataset import NumpySplits
from testing.delivery.schedule import Delivery
from testing.delivery.virtual.network import Network
from testing.delivery.virtual.primitives import Event, RLock, Semaphore, SimTime, current
from testing.delivery.virtual.rpc import SimChannel
from testing.delivery.virtual.rpc_server import SimServer
from testing.delivery.virtual.scheduler import Scheduler, SimProcess
from testing.delivery.virtual.sockets import SocketTable, sockets

DISPATCHER = "dispatcher:1"
GRACE_SECONDS = 3.0
_STORE_BYTES = 1 << 20
_WORKER_SERVICE = worker_pb2.DESCRIPTOR.services_by_name["Worker"]


class _Active:
    """The world whose processes run."""

    world: World


active = _Active()


def open_channel(address: str, credentials: object = None, **_: Any) -> SimChannel:
    """Take the place of `link.serving.open_channel`."""
    task = current.scheduler.current
    assert task is not None
    world = active.world
    return SimChannel(world.network, task.process, address, world.delivery.window)


def host_answers(address: str) -> bool:
    """Take the place of `link.reachability.host_answers`."""
    task = current.scheduler.current
    assert task is not None
    network = active.world.network
    server = network.servers.get(address)
    if server is not None and network.is_blocked(task.process, server.process):
        SimTime.sleep(ANSWER_SECONDS)
        return not network.is_blocked(task.process, server.process)
    SimTime.sleep(network.delay())
    return True


def record_log(
    self: Any, level: int, message: str, fields: dict[str, Any], trace: bool = False
) -> None:
    """Take the place of `Log._emit`: put lines into the event trace."""
    scheduler = current.scheduler
    task = scheduler.current
    process = task.process if task is not None else None
    if scheduler.verbose:
        values = " ".join(f"{key}={value}" for key, value in fields.items())
        scheduler.note(process, f"log: {message} {values}")
    if message.startswith("stream broke"):
        active.world.reopened += 1
    if "instead of row" in str(fields.get("cause")) and process is not None and process.alive:
        scheduler.problems.append(f"{process}: a worker sent wrong rows: {fields}")
    if level >= logging.ERROR and (process is None or process.alive):
        import traceback

        text = traceback.format_exc() if trace else ""
        scheduler.problems.append(f"{process} logged an error: {message} {fields} {text}")


def unless_full(write: Callable[..., None]) -> Callable[..., None]:
    """Return a function that writes, or raises OSError while the disk is full."""

    def checked(*args: Any) -> None:
        if active.world.is_disk_full:
            raise OSError("no space left on device")
        write(*args)

    return checked


class Part:
    """A process of the product, with the interface of `testing.processes.forks.Process`."""

    def __init__(self, process: SimProcess) -> None:
        self.process = process
        self.name = process.name
        self.terminating = Event()
        self.registry: Any = None  # of a sidecar

    @property
    def alive(self) -> bool:
        return self.process.alive

    def kill(self) -> None:
        self.process.kill()

    def signal(self, number: int) -> None:
        if number == signal.SIGSTOP:
            self.process.pause()
        elif number == signal.SIGCONT:
            self.process.resume()
        else:
            self.terminating.set()


class Proxy:
    """The connections to one worker, with the interface of `testing.chaos.proxy.Proxy`."""

    def __init__(self, world: World, site: str) -> None:
        self._world, self._site = world, site
        self._blocked: list[str] = []

    def cut_after(self, size: int) -> None:
        for connection in self._world.network.connections:
            if connection.server.process.name.startswith(f"{self._site}."):
                connection.cut_after(size)

    def hold(self) -> None:
        for part in self._world.sidecars:
            other = part.name.partition(".")[0]
            self._world.network.block(self._site, other)
            self._blocked.append(other)

    def flow(self) -> None:
        while self._blocked:
            self._world.network.heal(self._site, self._blocked.pop())


class WorkerPlace:
    """An address at which workers run, one after another."""

    def __init__(self, world: World, number: int) -> None:
        self.number = number
        self.address = f"worker{number}:1"
        self.proxy = Proxy(world, f"worker{number}")
        self.process: Part
        self.busy = True


class World:
    """All processes of a schedule.

    Args:
        scheduler: runs them.
        delivery: the schedule.
    """

    def __init__(self, scheduler: Scheduler, delivery: Delivery, folder: Path) -> None:
        active.world, current.scheduler = self, scheduler
        self.scheduler, self.delivery, self.folder = scheduler, delivery, folder
        self.schedule = delivery.schedule
        self.driver = scheduler.process("driver")
        self.network = Network(scheduler, delivery.latency, delivery.spike)
        sockets.table = SocketTable(delivery.socket_bytes)
        self.store, self.is_disk_full = folder / "store", False
        self.reopened = 0  # streams, after an error
        self.busy_seconds = 0.0  # of the cores of all workers
        self.workers: list[WorkerPlace] = []
        self.sidecars: list[Part] = []  # one for each consumer; some have several
        self.lock = RLock()
        self._starts: dict[str, int] = {}
        self._failures = dict(delivery.failures)
        self._config = self._write_config()
        self.dispatcher = self._start_dispatcher()

    def _write_config(self) -> str:
        path = self.folder / "config.json"
        path.write_text(json.dumps({"inputs": {INPUT: spec(self.schedule)}}))
        return str(path)

    def change_splits(self) -> None:
        """Let sidecars that start from now on read one split less, as after a changed spec."""
        fewer = replace(self.schedule.data, rows=self.schedule.data.rows[:-1])
        text = json.dumps({"inputs": {INPUT: spec(replace(self.schedule, data=fewer))}})
        Path(self._config).write_text(text)

    def start(self) -> None:
        """Start the first processes."""
        for _ in range(self.schedule.topology.workers):
            self.add_worker()
        self.start_sidecars(self.schedule.topology.consumers)

    def new_process(self, site: str) -> SimProcess:
        """Create a process at a site."""
        number = self._starts[site] = self._starts.get(site, -1) + 1
        return self.scheduler.process(f"{site}.{number}")

    def _run(self, site: str, main: Callable[[Part], None]) -> Part:
        part = Part(self.new_process(site))

        def run() -> None:
            main(part)

        part.process.spawn(run, "main")
        return part

    # The parts, as their `main` functions set them up.

    def _start_dispatcher(self) -> Part:
        delivery, network = self.delivery, self.network

        def main(part: Part) -> None:
            limits = DispatcherLimits(
                heartbeat=delivery.heartbeat,
                expiry=5 * delivery.heartbeat,
                hold=10 * delivery.heartbeat,
            )
            clock = RunningClock()
            state = DispatcherState(f"d{part.process.pid}", clock.now(), limits)
            service = DispatcherService(state, clock)
            SimServer(network, part.process, DISPATCHER, [service_handler(DESCRIPTOR, service)])
            while not part.terminating.wait(TICK_SECONDS):
                service.expire()

        return self._run("dispatcher", main)

    def _start_worker(self, place: WorkerPlace) -> Part:
        from distributed_input.link.heartbeats.membership import Membership
        from distributed_input.worker import serve
        from distributed_input.worker.service import WorkerService
        from distributed_input.worker.store.block_store import BlockStore

        delivery, network = self.delivery, self.network
        slow = self.schedule.topology.slow_worker if not place.number else 0.0
        work = (self.schedule.data.sleep_ms + slow) / 1000

        def main(part: Part) -> None:
            splits: Any = NumpySplits(
                part.process.pid, self._work(work, delivery.cores), self._fails
            )
            dispatcher = Stub(open_channel(DISPATCHER), DESCRIPTOR)  # type: ignore[arg-type]
            store = BlockStore(self.store, _STORE_BYTES) if delivery.stored else None
            service = WorkerService(
                splits, delivery.parallelism, 2048, delivery.share_bytes, store=store
            )
            handler = service_handler(_WORKER_SERVICE, service)
            server: Any = SimServer(network, part.process, place.address, [handler])
            pod = "" if place.number else delivery.pod
            membership = Membership(dispatcher, service.load, place.address, "2.16.0", pod)
            membership.start()
            place.busy = False
            part.terminating.wait()
            serve._drain(server, service, membership, GRACE_SECONDS)
            part.process.kill()

        return self._run(f"worker{place.number}", main)

    def _work(self, seconds: float, cores: int) -> Callable[[int], None]:
        """Return what a worker calls to compute rows, each of which takes `seconds`."""
        free: Any = Semaphore(cores) if cores else contextlib.nullcontext()

        def work(rows: int) -> None:
            if seconds:
                with free:
                    SimTime.sleep(seconds * rows)
                self.busy_seconds += seconds * rows

        return work

    def _start_sidecar(self, site: str, trainer: int, ranks: int, consumers: int) -> Part:
        from distributed_input.sidecar import main as sidecar_main
        from distributed_input.sidecar.server import SidecarServer

        folder = self.folder / site
        folder.mkdir(exist_ok=True)

        def main(part: Part) -> None:
            args = argparse.Namespace(
                consumer_index=trainer,
                consumer_count=consumers // ranks,
                ranks_per_trainer=str(ranks),
                config=[self._config],
                dispatcher=[DISPATCHER],
                token_file=None,
                tls_dir=None,
                pod=self.delivery.pod,
            )
            part.registry = sidecar_main._registry(args, folder)
            server = SidecarServer(part.registry, folder)
            server.start()
            part.terminating.wait()
            server.close()
            part.process.kill()

        return self._run(site, main)

    def _fails(self, split: int, row: int) -> bool:
        """Return whether the user's dataset raises an error now; each failure happens once."""
        left = self._failures.get((split, row), 0)
        if left:
            self._failures[split, row] = left - 1
        return bool(left)

    # The interface of `Fleet`.

    def add_worker(self, wait: bool = True) -> WorkerPlace:
        """Start another worker at a new address."""
        place = WorkerPlace(self, len(self.workers))
        place.process = self._start_worker(place)
        self.workers.append(place)
        return place

    def restart_worker(self, place: WorkerPlace) -> None:
        """Start a process at the address of a worker that has ended."""
        place.process = self._start_worker(place)

    def restart_dispatcher(self) -> None:
        """Start an empty dispatcher at the address of the last one."""
        self.dispatcher = self._start_dispatcher()

    def start_sidecars(self, consumers: int) -> None:
        """Start a sidecar for each trainer, each in its own folder."""
        self.sidecars = []
        ranks = self._ranks(consumers)
        for trainer in range(consumers // ranks):
            site = f"sidecar{self._starts.get('folders', 0)}"
            self._starts["folders"] = self._starts.get("folders", 0) + 1
            self.sidecars += [self._start_sidecar(site, trainer, ranks, consumers)] * ranks

    def restart_sidecar(self, consumer: int) -> None:
        """Start a sidecar again in the same folder."""
        site = self.sidecars[consumer].name.partition(".")[0]
        consumers = len(self.sidecars)
        ranks = self._ranks(consumers)
        trainer = consumer // ranks
        again = self._start_sidecar(site, trainer, ranks, consumers)
        self.sidecars[trainer * ranks : (trainer + 1) * ranks] = [again] * ranks

    def _ranks(self, consumers: int) -> int:
        """Return how many consumers each sidecar has."""
        return 1 if consumers % self.delivery.ranks else self.delivery.ranks

    def folder_of(self, consumer: int) -> Path:
        """Return the folder that a trainer shares with its sidecar."""
        return self.folder / self.sidecars[consumer].name.partition(".")[0]

    def kill(self, part: Part) -> None:
        """Send SIGKILL."""
        part.kill()

    def drain(self, part: Part) -> None:
        """Send SIGTERM."""
        part.signal(signal.SIGTERM)

    def live_workers(self) -> list[WorkerPlace]:
        """Return the workers that serve and that no fault uses."""
        return [w for w in self.workers if w.process.alive and not w.busy]

    def status(self) -> dispatcher_pb2.StatusResponse:
        """Return the dispatcher's status; the caller is a task."""
        channel: Any = open_channel(DISPATCHER)
        found: dispatcher_pb2.StatusResponse = Stub(channel, DESCRIPTOR).Status(
            dispatcher_pb2.StatusRequest(), timeout=5
        )
        return found


@contextlib.contextmanager
def scratch() -> Iterator[Path]:
    """Yield an empty folder in memory, if the system has one."""
    shared = Path("/dev/shm")
    folder = tempfile.mkdtemp(prefix="di-delivery-", dir=shared if shared.is_dir() else None)
    try:
        yield Path(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
