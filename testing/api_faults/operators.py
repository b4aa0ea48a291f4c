"""An operator that is killed and started again, as forks of one process that has imported all."""

from __future__ import annotations

import contextlib
import functools
import socket
import threading
from pathlib import Path

from distributed_input.api.environment import POD_NAMESPACE_ENV
from testing.api_faults.entry import SKEW_ENV
from testing.operator.cluster import Cluster, RequestRejected
from testing.processes.forks import Process, Zygote

_LEASE = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/distributed-input-operator"


@functools.cache
def zygote() -> Zygote:
    """Return the process that forks operators. It ends with this process."""
    made = Zygote(["testing.api_faults.entry", "kopf", "kubernetes.aio.client"])
    made.wait_imported()
    return made


class RestartingOperator:
    """The one operator of a namespace.

    Attributes:
        starts: number of starts.
        skew: seconds that the clock of the next process is ahead.
    """

    def __init__(self, kubeconfig: Path, cluster: Cluster, folder: Path, *flags: str) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self._port = sock.getsockname()[1]
        self._kubeconfig, self._cluster, self._folder = kubeconfig, cluster, folder
        self._flags = flags
        self._process: Process | None = None
        self._lock = threading.Lock()
        self.starts = 0
        self.skew = 0.0

    @property
    def log(self) -> str:
        """What all its processes have logged."""
        path = self._folder / "operator.log"
        return path.read_text() if path.exists() else ""

    @property
    def alive(self) -> bool:
        """Whether a process runs."""
        return self._process is not None and self._process.alive

    def start(self) -> None:
        """Start a process that leads at once, as if the lease of the last one had expired."""
        with contextlib.suppress(RequestRejected):
            self._cluster.call("DELETE", _LEASE.format(self._cluster.namespace))
        self.starts += 1
        argv = ["--worker-image", "worker:1", "--sidecar-image", "sidecar:1"]
        argv += ["--namespace", self._cluster.namespace, "--listen", f"127.0.0.1:{self._port}"]
        env = {"KUBECONFIG": str(self._kubeconfig), POD_NAMESPACE_ENV: self._cluster.namespace}
        self._process = zygote().start(
            "operator",
            "testing.api_faults.entry",
            [*argv, *self._flags],
            log=self._folder / "operator.log",
            ready=self._folder / "unused",
            env={**env, SKEW_ENV: str(self.skew)},
        )

    def kill(self) -> None:
        """Send SIGKILL and wait for the end. Threads may call it at the same time."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def restart(self) -> None:
        """Kill the process and start another one."""
        self.kill()
        self.start()
