"""The processes of one schedule: a dispatcher, workers (behind proxies) and sidecars."""

from __future__ import annotations

import contextlib
import json
import re
import secrets
import shutil
import signal
import tempfile
import threading
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from distributed_input.api.proto import dispatcher_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import open_channel
from distributed_input.link.stubs import Stub
from distributed_input.link.tls.certificate_folder import CertificateFolder
from distributed_input.link.tls_credentials import TlsCredentials
from testing.certificates import MountedFolder, authority
from testing.chaos import rows
from testing.chaos.proxy import Loop, Proxy
from testing.chaos.schedule import Data, Schedule, Topology
from testing.processes.forks import Forks, Process, ProcessError, own_address

INPUT = "train"
HEARTBEAT_SECONDS = 0.25
EXPIRY_SECONDS = 1.5
GRACE_SECONDS = 3.0
_STOP_SECONDS = 12.0


@dataclass
class Worker:
    """A port and a proxy at which worker processes run, one after another."""

    process: Process
    address: str
    proxy: Proxy | None
    busy: bool = True  # not ready, or in use by a fault


class Fleet:
    """All processes of a schedule; started by the constructor. Thread-safe.

    Args:
        mutants: name of the deliberate bug for each part ("worker", "sidecar", "dispatcher").
        sections: sections of the input that replace those of the schedule.
    """

    def __init__(
        self,
        forks: Forks,
        schedule: Schedule,
        mutants: Mapping[str, str] | None = None,
        sections: Mapping[str, Any] | None = None,
    ) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="di-chaos-"))
        self.workers: list[Worker] = []
        self.sidecars: list[Process] = []
        self.processes: list[Process] = []
        self.lock = threading.RLock()
        self._forks, self._topology = forks, schedule.topology
        self._mutants = dict(mutants or {})
        self._killed: set[int] = set()
        self._drained: set[int] = set()
        self._numbers: dict[str, int] = {}
        self._loop = Loop() if uses_proxies(schedule) else None
        self._host = own_address() if schedule.transfer in ("tcp", "tls") else "127.0.0.1"
        self._is_encrypted = schedule.transfer == "tls"
        self._authority = authority(name=INPUT)
        self._token = secrets.token_urlsafe(16)
        self._credentials = self._own_credentials()
        self._config = self.folder / "config.json"
        found = {**spec(schedule), **(sections or {})}
        self._config.write_text(json.dumps({"inputs": {INPUT: found}}))
        self.dispatcher = self._start("dispatcher", ["--listen", "127.0.0.1:0", *_TIMES])
        self.address = str(self.dispatcher.ready()["address"])
        for _ in range(schedule.topology.workers):
            self.add_worker(wait=False)
        self.start_sidecars(schedule.topology.consumers)
        for worker in self.workers:
            self._wait_serving(worker)

    # Starting.

    def add_worker(self, wait: bool = True) -> Worker:
        """Start another worker at a new address."""
        with self.lock:
            proxy = Proxy(self._loop) if self._loop is not None else None
            worker = Worker(self._start_worker(f"{self._host}:0", proxy), "", proxy)
            self.workers.append(worker)
        if wait:
            self._wait_serving(worker)
        return worker

    def restart_worker(self, worker: Worker) -> None:
        """Start a process at the address of a worker that has ended."""
        address = worker.address or f"{self._host}:0"
        worker.process = self._start_worker(address, worker.proxy)
        self._wait_serving(worker)

    def restart_dispatcher(self) -> None:
        """Start an empty dispatcher at the address of the last one."""
        started = self.dispatcher = self._start("dispatcher", ["--listen", self.address, *_TIMES])
        self._ready_unless_killed(started)

    def start_sidecars(self, consumers: int) -> None:
        """Start a sidecar for each trainer, each in its own folder."""
        self.sidecars = [
            self._start_sidecar(self._number("folder"), c, consumers) for c in range(consumers)
        ]
        for process in self.sidecars:
            process.ready()

    def restart_sidecar(self, consumer: int) -> None:
        """Start a sidecar again in the same folder."""
        gone = self.sidecars[consumer]
        folder = int(gone.name.split("-")[1])
        self.sidecars[consumer] = self._start_sidecar(folder, consumer, len(self.sidecars))
        self._ready_unless_killed(self.sidecars[consumer])

    def folder_of(self, consumer: int) -> Path:
        """Return the folder that a trainer shares with its sidecar."""
        return self._shared(int(self.sidecars[consumer].name.split("-")[1]))

    # Ending.

    def kill(self, process: Process) -> None:
        """Send SIGKILL and wait for the end."""
        self._killed.add(process.pid)
        process.kill()

    def drain(self, process: Process) -> None:
        """Send SIGTERM once; a second SIGTERM would end the process before it has drained."""
        if process.pid not in self._drained | self._killed:
            self._drained.add(process.pid)
            process.signal(signal.SIGTERM)

    def live_workers(self) -> list[Worker]:
        """Return the workers that serve and that no fault uses."""
        return [w for w in self.workers if w.process.alive and not w.busy]

    def status(self) -> dispatcher_pb2.StatusResponse:
        """Return the dispatcher's status."""
        service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
        with contextlib.closing(open_channel(self.address, self._credentials)) as channel:
            answer: dispatcher_pb2.StatusResponse = Stub(channel, service).Status(
                dispatcher_pb2.StatusRequest(), timeout=5
            )
        return answer

    def close(self) -> list[str]:
        """End all processes with SIGTERM. Return a description of each problem."""
        others = [p for p in self.processes if p is not self.dispatcher]
        problems: list[str] = []
        # Stop the dispatcher last, so that it receives the others' last messages.
        for group in (others, [self.dispatcher]):
            for process in group:
                self.drain(process)
            for process in group:
                problems += self._stop_problems(process)
        if self._loop is not None:
            self._loop.close()
        return problems

    def remove(self) -> None:
        """Remove the folder with all logs."""
        shutil.rmtree(self.folder, ignore_errors=True)

    def logs(self) -> list[tuple[str, dict[str, Any]]]:
        """Return (process, entry) of all log lines in order of time.

        Other text counts as an error.
        """
        found = []
        for path in sorted(self.folder.glob("*.log")):
            for line in path.read_text(errors="replace").splitlines():
                try:
                    entry = json.loads(line)
                except ValueError:
                    if not _is_native_log(line):
                        found.append((path.stem, {"level": "raw", "message": line, "time": ""}))
                    continue
                found.append((path.stem, entry))
        return sorted(found, key=lambda item: str(item[1].get("time", "")))

    # Private parts.

    def _stop_problems(self, process: Process) -> list[str]:
        try:
            status = process.wait(_STOP_SECONDS)
        except ProcessError as error:
            process.kill()
            return [f"did not end on SIGTERM: {error}"]
        if status != 0 and process.pid not in self._killed:
            return [f"{process.name} ended with {status}:\n{process.tail()}"]
        return []

    def _wait_serving(self, worker: Worker) -> None:
        found = self._ready_unless_killed(worker.process)
        if not found:
            return
        worker.address = str(found["address"])
        if worker.proxy is not None:
            worker.proxy.upstream = worker.address
        worker.busy = False

    def _ready_unless_killed(self, process: Process) -> dict[str, Any]:
        """Return the content of the ready file; empty if another fault killed the process first."""
        try:
            return process.ready()
        except ProcessError:
            if process.pid not in self._killed:
                raise
            return {}

    def _start_worker(self, listen: str, proxy: Proxy | None) -> Process:
        slow = self._topology.slow_worker if not self.workers else 0.0
        flags = ["--listen", listen, "--dispatcher", self.address, "--parallelism", "4"]
        if proxy is not None:
            flags += ["--advertise", proxy.address]
        return self._start("worker", flags, {rows.SLOW_ENV: str(slow)})

    def _start_sidecar(self, folder: int, consumer: int, consumers: int) -> Process:
        flags = ["--dispatcher", self.address, "--config", str(self._config)]
        flags += ["--dir", str(self._shared(folder))]
        flags += ["--consumer-index", str(consumer), "--consumer-count", str(consumers)]
        return self._start("sidecar", flags, kind=f"sidecar-{folder}")

    def _shared(self, number: int) -> Path:
        return self.folder / f"shared-{number}"

    def _start(
        self, part: str, flags: list[str], env: dict[str, str] | None = None, kind: str = ""
    ) -> Process:
        name = f"{kind or part}-{self._number(kind or part)}"
        if self._is_encrypted:
            folder = self._certificate(part)
            flags = [*flags, "--tls-dir", str(folder.parent if part == "sidecar" else folder)]
        process = self._forks.start(
            f"distributed_input.{part}.main",
            name,
            self.folder,
            [*flags, "--grace-seconds", str(GRACE_SECONDS)],
            env={**(env or {}), **self._token_variable()},
            mutant=self._mutants.get(part, ""),
            heavy=part == "worker",
        )
        self.processes.append(process)
        return process

    def _token_variable(self) -> dict[str, str]:
        return {} if self._is_encrypted else {"DISTRIBUTED_INPUT_TOKEN": self._token}

    def _own_credentials(self) -> Credentials:
        if self._is_encrypted:
            return TlsCredentials(CertificateFolder(self._certificate("operator")))
        return Credentials.from_args(None, self._token_variable())

    def _certificate(self, role: str) -> Path:
        folder = self.folder / "tls" / role / INPUT
        return folder if folder.exists() else MountedFolder(folder).issue(role, self._authority)

    def _number(self, kind: str) -> int:
        with self.lock:
            self._numbers[kind] = self._numbers.get(kind, -1) + 1
            return self._numbers[kind]


_TIMES = [
    *("--heartbeat-seconds", str(HEARTBEAT_SECONDS)),
    *("--expiry-seconds", str(EXPIRY_SECONDS)),
]


_NATIVE = re.compile(r"[IWE]\d{4} |WARNING: All log messages before absl")


def _is_native_log(line: str) -> bool:
    """Return whether gRPC's or TensorFlow's C++ code wrote this line."""
    return not line.strip() or _NATIVE.match(line) is not None


def uses_proxies(schedule: Schedule) -> bool:
    """Return whether a proxy stands between sidecars and workers."""
    return schedule.topology.proxied and schedule.transfer in ("drawn", "grpc")


def spec(schedule: Schedule) -> dict[str, Any]:
    """Return the resolved spec for the sidecars of a schedule."""
    topology, data = schedule.topology, schedule.data
    weights = {f"s{number}": weight for number, weight in enumerate(topology.weights)}
    return {
        "dataset": {"entryPoint": _entry(data), "args": _arguments(topology, data)},
        "processingMode": topology.mode,
        "numSplits": len(data.rows) // max(1, len(weights)),
        "mixture": {"weights": weights, "onExhausted": topology.exhausted},
        "partitions": topology.partitions,
        "seed": topology.seed,
        "epochs": topology.epochs,
        "batching": {"globalBatchSize": topology.batch or None, "remainder": topology.remainder},
        "determinism": topology.determinism,
        "sidecar": {
            "readAhead": topology.read_ahead,
            "timeoutSeconds": schedule.timeout,
            "bufferBytes": topology.ring_steps * _step_bytes(topology, data),
            # Direct connections do not go through the proxies.
            "transfer": "grpc" if uses_proxies(schedule) or schedule.transfer == "grpc" else "auto",
        },
    }


def _entry(data: Data) -> str:
    return f"testing.chaos.rows:{'graph' if data.graph else 'iterable'}"


def _arguments(topology: Topology, data: Data) -> dict[str, Any]:
    own: dict[str, Any] = {"sleep_ms": data.sleep_ms, "flaky": data.flaky}
    if data.graph:
        own = {"batch": topology.batch}
    shared = {"vary": data.vary, "size": data.row_bytes, "texts": data.text}
    return {"rows": list(data.rows), **shared, **own}


def _step_bytes(topology: Topology, data: Data) -> int:
    """Return the maximum size of one consumer's step in the slot pool, in bytes."""
    step = topology.batch or topology.partitions
    row = data.row_bytes + 16 + (4 + 52 if data.text else 0)
    padding = 64 * 6 * max(topology.replicas, step if topology.whole else 1)
    return step * row + padding
