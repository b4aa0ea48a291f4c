"""TensorFlow's tf.data service as the product starts it: a dispatcher and workers."""

from __future__ import annotations

import shutil
import signal
import tempfile
from pathlib import Path

from distributed_input.runtime.addresses import free_ports
from testing.hosts import THIS_HOST, Host
from testing.integration.cluster import Part
from testing.processes.forks import ProcessError

WORKERS = 2


class TfDataServiceServers:
    """Real processes; a context manager. `address` is the argument of `distribute`."""

    def __init__(self, static: bool = True, workers: int = WORKERS, host: Host = THIS_HOST) -> None:
        self._host = host
        self.folder = Path(tempfile.mkdtemp(prefix="di-tf-data-"))
        port, *self._ports = free_ports(1 + workers)
        own = host.address
        self.address = f"grpc://{own}:{port}"
        flags = ["dispatcher", "--port", str(port), "--work-dir", str(self.folder / "journal")]
        if static:
            flags += ["--static-workers", ",".join(f"{own}:{one}" for one in self._ports)]
        self._flags = flags
        self._starts = 0
        self.dispatcher = self._dispatcher()
        self.workers = [
            Part(
                self.folder,
                f"tf-data-worker-{index}",
                "tf_data_service",
                [
                    *("worker", "--dispatcher", f"{own}:{port}"),
                    *("--port", str(one), "--advertise", f"{own}:{one}"),
                ],
                host,
            )
            for index, one in enumerate(self._ports)
        ]
        for part in (self.dispatcher, *self.workers):
            part.wait_ready()

    def restart_dispatcher(self) -> None:
        """Kill the dispatcher and start another one with the same journal."""
        self.dispatcher.kill()
        self.dispatcher = self._dispatcher()
        self.dispatcher.wait_ready()

    def _dispatcher(self) -> Part:
        self._starts += 1
        return Part(
            self.folder,
            f"tf-data-dispatcher-{self._starts}",
            "tf_data_service",
            self._flags,
            self._host,
        )

    def __enter__(self) -> TfDataServiceServers:
        return self

    def __exit__(self, *_: object) -> None:
        parts = [*self.workers, self.dispatcher]
        for part in parts:
            part.signal(signal.SIGTERM)
        for part in parts:
            try:
                part.process.wait(10)
            except ProcessError:
                part.kill()
        shutil.rmtree(self.folder, ignore_errors=True)
