"""Dispatcher, workers and sidecars as real processes on this machine.

    with Cluster() as cluster:
        cluster.add_workers(2)
        first, second = cluster.add_sidecars({"train": spec("rows:numbered")}, consumers=2)

Start parts from a thread that outlives them (the main thread): they end with that thread.
"""

from __future__ import annotations

import contextlib
import json
import secrets
import shutil
import signal
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

from distributed_input.api.proto import dispatcher_pb2
from distributed_input.api.resource.input import API_VERSION, KIND, DistributedInput, input_config
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import open_channel
from distributed_input.link.stubs import Stub
from testing.hosts import THIS_HOST, Host
from testing.processes import forks
from testing.processes.forks import ProcessError

DATASETS = Path(__file__).parent / "datasets"
"""Modules with entry points, on the path of every worker."""
STOP_SECONDS = 15.0


def spec(entry_point: str = "", args: Mapping[str, Any] | None = None, **fields: Any) -> Any:
    """Return a resolved spec for sidecars, from the fields of a resource's spec (camelCase).

    The fields of `batching` and `sidecar` are given without their parents. Without an entry point,
    the trainer provides the dataset.
    """
    batching = {k: fields.pop(k) for k in ("globalBatchSize", "remainder") if k in fields}
    sidecar: dict[str, Any] = {"buffer": "16Mi", "timeoutSeconds": 30}
    names = ("buffer", "readAhead", "timeoutSeconds", "transfer")
    sidecar |= {k: fields.pop(k) for k in names if k in fields}
    dataset: dict[str, Any] = {"type": "Trainer"}
    if entry_point:
        entry = {"function": entry_point, "args": dict(args or {})}
        dataset = {"type": "EntryPoint", "entryPoint": entry}
    resource = DistributedInput.model_validate(
        {
            "apiVersion": API_VERSION,
            "kind": KIND,
            "metadata": {"name": "any"},
            "spec": {"dataset": dataset, "batching": batching, "sidecar": sidecar, **fields},
        }
    )
    return input_config(resource).to_json()


class Part:
    """One process of the cluster.

    Attributes:
        name: for messages.
        process: the process; its log has stdout and stderr.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        kind: str,
        flags: list[str],
        host: Host = THIS_HOST,
        **env: str,
    ) -> None:
        self.name = name
        self._read = 0
        self.process = forks.shared().start(
            f"distributed_input.{kind}.main",
            name,
            folder,
            flags,
            env=env,
            heavy=kind in ("worker", "tf_data_service"),
            host=host,
        )

    @property
    def log(self) -> Path:
        return self.process.log

    @property
    def pid(self) -> int:
        return self.process.pid

    def wait_ready(self) -> dict[str, Any]:
        """Return the content of the ready file. Raises AssertionError with the end of the log."""
        try:
            return self.process.ready()
        except ProcessError as error:
            raise AssertionError(str(error)) from error

    @property
    def address(self) -> str:
        """Return host:port of the server, or the path of its socket."""
        return str(self.wait_ready()["address"])

    def signal(self, number: int) -> None:
        """Send a signal, if the process is alive."""
        self.process.signal(number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.process.kill()

    def stop(self) -> int:
        """Send SIGTERM, wait, and return the exit status.

        Raises AssertionError if the process had to be killed.
        """
        self.signal(signal.SIGTERM)
        try:
            return self.process.wait(STOP_SECONDS)
        except ProcessError as error:
            self.kill()
            raise AssertionError(f"SIGTERM did not end it in {STOP_SECONDS} s: {error}") from error

    def resident_bytes(self, field: str = "RssAnon") -> int:
        """Return a memory field of /proc/PID/status. RssAnon excludes files and shared memory."""
        for line in Path(f"/proc/{self.pid}/status").read_text().splitlines():
            if line.startswith(f"{field}:"):
                return int(line.split()[1]) << 10
        raise AssertionError(f"no {field} of {self.name}: has it ended?")

    def tail(self) -> str:
        """Return the end of the log."""
        return self.process.tail()

    def new_log_lines(self) -> str:
        """Return the log since the last call."""
        text = self.log.read_bytes()
        new, self._read = text[self._read :], len(text)
        return new.decode(errors="replace")


class Sidecar(Part):
    """A sidecar. Trainers find it by its folder `shared`."""

    shared: Path


class Cluster:
    """A dispatcher, with workers and sidecars on request. A context manager.

    Args:
        token: what all processes send. Default: random.
        hosts: where a process such as `worker-1` or all of a kind run. Default: this host, with the
            loopback address.
    """

    def __init__(self, token: str | None = None, hosts: Mapping[str, Host] | None = None) -> None:
        self._hosts = dict(hosts or {})
        # A short name, because a socket's path has at most 107 characters.
        self.folder = Path(tempfile.mkdtemp(prefix="di-"))
        self.parts: list[Part] = []
        self.workers: list[Part] = []
        self.sidecars: list[Sidecar] = []
        self._numbers: dict[str, int] = {}
        self.token = self.folder / "token"
        self.token.write_text(token or secrets.token_urlsafe(16))
        try:
            self.dispatcher = self._add("dispatcher", self._listen("dispatcher"))
            self.address = self.dispatcher.address
        except BaseException:
            self.close()
            raise

    def add_workers(self, count: int, *flags: str) -> list[Part]:
        """Start this number of workers; return when they serve."""
        more = ["--dispatcher", self.address, "--path", str(DATASETS)]
        added = [
            self._add("worker", [*self._listen("worker"), *more, *flags]) for _ in range(count)
        ]
        self.workers += added
        for part in added:
            part.wait_ready()
        return added

    def add_sidecars(
        self,
        inputs: Mapping[str, Any],
        consumers: int = 1,
        only: int | None = None,
        folder: Path | None = None,
        token: Path | None = None,
        pods: Sequence[str] = (),
        ranks_per_trainer: int | str = 1,
    ) -> list[Sidecar]:
        """Start the sidecars of this number of trainers, all with these inputs (name: `spec(...)`).

        Args:
            inputs: names that are new to the dispatcher, or belong to the same job as before.
            consumers: number of trainers.
            only: index of the only trainer that gets a sidecar.
            folder: folder of an earlier sidecar that this one replaces.
            token: token file, if not the cluster's.
            pods: id of the pod of each trainer, for workers with the same `--pod`.
            ranks_per_trainer: processes of each trainer that read, or 1/N if N trainers read the
                same rows.
        """
        config = self.folder / f"config-{len(self.sidecars)}.json"
        config.write_text(json.dumps({"inputs": inputs}))
        added: list[Sidecar] = []
        for consumer in range(consumers) if only is None else (only,):
            shared = folder or self.folder / f"shared-{len(self.sidecars) + len(added)}"
            flags = ["--config", str(config), "--dir", str(shared)]
            flags += [f for name in inputs for f in ("--dispatcher", f"{name}={self.address}")]
            flags += ["--consumer-index", str(consumer), "--consumer-count", str(consumers)]
            flags += ["--pod", pods[consumer]] if pods else []
            flags += ["--ranks-per-trainer", str(ranks_per_trainer)]
            part = self._add("sidecar", flags, token)
            assert isinstance(part, Sidecar)
            part.shared = shared
            added.append(part)
        self.sidecars += added
        for part in added:
            part.wait_ready()
        return added

    def restart_dispatcher(self) -> Part:
        """Start a new dispatcher at the last address; return when it serves."""
        self.dispatcher = self._add("dispatcher", ["--listen", self.address])
        self.dispatcher.wait_ready()
        return self.dispatcher

    def status(self) -> dispatcher_pb2.StatusResponse:
        """Return the dispatcher's status."""
        service = dispatcher_pb2.DESCRIPTOR.services_by_name["Dispatcher"]
        credentials = self.credentials()
        with contextlib.closing(open_channel(self.address, credentials)) as channel:
            answer: dispatcher_pb2.StatusResponse = Stub(channel, service).Status(
                dispatcher_pb2.StatusRequest(max_skipped=1000), timeout=10
            )
        return answer

    def credentials(self) -> Credentials:
        """Return credentials for the dispatcher's status."""
        return Credentials.from_args(str(self.token), {})

    def new_log_lines(self) -> str:
        """Return the logs since the last call.

        If a test prints them, pytest shows them on failure.
        """
        logs = ((part.name, part.new_log_lines()) for part in self.parts)
        return "\n".join(f"== {name}\n{text}" for name, text in logs if text)

    def remove(self, parts: list[Any]) -> None:
        """Stop parts that are no longer needed, all at once."""
        for part in parts:
            part.signal(signal.SIGTERM)
        for part in parts:
            try:
                part.process.wait(STOP_SECONDS)
            except ProcessError:
                part.kill()

    def close(self) -> None:
        """End all processes and remove the folder."""
        self.remove([part for part in self.parts if part.process.alive])
        shutil.rmtree(self.folder, ignore_errors=True)

    def __enter__(self) -> Cluster:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is not None:
            print(self.new_log_lines())
        self.close()

    def credential_flags(self, kind: str, token: Path | None) -> list[str]:
        """Return the flags with the credentials of a process: dispatcher, worker or sidecar."""
        return ["--token-file", str(token or self.token)]

    def _host(self, kind: str) -> Host:
        """Return where the next process of a kind runs."""
        number = self._numbers.get(kind, -1) + 1
        return self._hosts.get(f"{kind}-{number}") or self._hosts.get(kind, THIS_HOST)

    def _listen(self, kind: str) -> list[str]:
        return ["--listen", f"{self._host(kind).address}:0"]

    def _add(self, kind: str, flags: list[str], token: Path | None = None) -> Part:
        host = self._host(kind)
        number = self._numbers[kind] = self._numbers.get(kind, -1) + 1
        common = [*self.credential_flags(kind, token), "--grace-seconds", "3"]
        make = Sidecar if kind == "sidecar" else Part
        part = make(self.folder, f"{kind}-{number}", kind, [*flags, *common], host)
        self.parts.append(part)
        return part


@contextlib.contextmanager
def temporary_sidecars(
    cluster: Cluster, inputs: Mapping[str, Any], consumers: int = 1
) -> Iterator[list[Sidecar]]:
    """Start sidecars and stop them at the end of the block."""
    added = cluster.add_sidecars(inputs, consumers)
    try:
        yield added
    finally:
        cluster.remove(added)
