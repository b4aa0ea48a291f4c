"""Runs operators as processes, and polls for conditions."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from distributed_input.api.environment import POD_NAMESPACE_ENV

T = TypeVar("T")

SECONDS = 60.0
"""Default timeout, long enough for a busy machine."""


def eventually(look: Callable[[], T], seconds: float = SECONDS, every: float = 0.1) -> T:
    """Call `look` every `every` seconds until its result is truthy. Return the result.

    Fail after `seconds`.
    """
    deadline, found = time.monotonic() + seconds, look()
    while not found and time.monotonic() < deadline:
        time.sleep(every)
        found = look()
    assert found, f"not true within {seconds:g} s: {look.__doc__ or look.__name__}"
    return found


class Operator:
    """One replica of the operator for one namespace."""

    module = "distributed_input_operator"

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, *flags: str) -> None:
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            self.port = sock.getsockname()[1]
        self.namespace = namespace
        self.log = folder / f"{self.module}-{self.port}.log"
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), POD_NAMESPACE_ENV: namespace}
        self._flags = flags or ("--namespace", namespace)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", self.module]
        command += ["--worker-image", "worker:1", "--sidecar-image", "sidecar:1"]
        command += ["--listen", f"127.0.0.1:{self.port}", *self._flags]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self._env, stderr=log)

    def wait_until_leading(self) -> None:
        """Wait until this replica is the leader."""
        eventually(lambda: self.metric("distributed_input_operator_leader") == 1)

    def get(self, path: str) -> tuple[int, str]:
        """Return status and text of a page, or (0, "") if the connection fails."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """Return a metric's sum over all labels."""
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def writes(self) -> float:
        """Return the number of write requests."""
        return self.metric("distributed_input_operator_writes_total")

    def read_log(self) -> str:
        """Return the log."""
        return self.log.read_text()

    def kill(self) -> None:
        """Send SIGKILL and wait for the exit."""
        self.process.kill()
        self.process.wait(SECONDS)

    def restart(self) -> None:
        """Kill the process and start a new one."""
        self.kill()
        self.process = self._start()

    def stop(self) -> int:
        """Send SIGTERM and return the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def run_operator(kubeconfig: Path, namespace: str, folder: Path, *flags: str) -> Iterator[Operator]:
    """Run an operator that is the leader. Print its log if the body fails."""
    operator = Operator(kubeconfig, namespace, folder, *flags)
    try:
        operator.wait_until_leading()
        yield operator
    except BaseException:
        print(operator.read_log())
        raise
    finally:
        if operator.process.poll() is None:
            operator.stop()


def template(pod: dict[str, Any] | None = None, **container: Any) -> dict[str, Any]:
    """Return spec.workers with fields of the pod template: of its pods, and of its container."""
    containers = {"containers": [{"name": "worker", **container}]} if container else {}
    return {"template": {"spec": {**(pod or {}), **containers}}}


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """Return a DistributedInput. Default: without encryption, as the dispatchers of most tests.

    `encryption=None` omits the field, so that the input gets the operator's default.
    """
    spec = {
        "dataset": {"type": "EntryPoint", "entryPoint": {"function": "digits:dataset_fn"}},
        "encryption": "None",
        **spec,
    }
    return {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": {key: value for key, value in spec.items() if value is not None},
    }
