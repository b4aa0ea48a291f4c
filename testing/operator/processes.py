"""Operators as processes, as they run in pods, and the cluster as tests look at it."""

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

from distributed_input.api.names import POD_NAMESPACE_ENV

T = TypeVar("T")

SECONDS = 60.0
"""Nothing here takes so long, even on a busy machine."""


def eventually(look: Callable[[], T], seconds: float = SECONDS, every: float = 0.1) -> T:
    """What `look` returns once that is truthy, looking `every` so many seconds; fails with what
    it returned last.
    """
    deadline, found = time.monotonic() + seconds, look()
    while not found and time.monotonic() < deadline:
        time.sleep(every)
        found = look()
    assert found, f"not within {seconds:g} s: {look.__doc__ or look.__name__}"
    return found


class Operator:
    """One replica, serving one namespace."""

    def __init__(self, kubeconfig: Path, namespace: str, folder: Path, *flags: str) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.namespace = namespace
        self.log = folder / f"operator-{self.port}.log"
        self._env = {**os.environ, "KUBECONFIG": str(kubeconfig), POD_NAMESPACE_ENV: namespace}
        self._flags = flags or ("--namespace", namespace)
        self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", "distributed_input_operator"]
        command += ["--worker-image", "worker:1", "--sidecar-image", "sidecar:1"]
        command += ["--listen", f"127.0.0.1:{self.port}", *self._flags]
        with self.log.open("ab") as log:
            return subprocess.Popen(command, env=self._env, stderr=log)

    def wait_until_leading(self) -> None:
        """Return once it works."""
        eventually(lambda: self.metric("distributed_input_operator_leader") == 1)

    def get(self, path: str) -> tuple[int, str]:
        """Status and text of a page; (0, "") where nobody serves it."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}{path}", timeout=5) as page:
                return page.status, page.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError:
            return 0, ""

    def metric(self, name: str) -> float:
        """The sum over all labels."""
        found = re.findall(rf"^{name}(?:{{.*}})? (\S+)$", self.get("/metrics")[1], re.MULTILINE)
        return sum(map(float, found))

    def writes(self) -> float:
        """Requests so far that change something."""
        return self.metric("distributed_input_operator_writes_total")

    def logged(self) -> str:
        """All that it logged."""
        return self.log.read_text()

    def kill(self) -> None:
        """SIGKILL."""
        self.process.kill()
        self.process.wait(SECONDS)

    def restart(self) -> None:
        """Another life."""
        self.kill()
        self.process = self._start()

    def stop(self) -> int:
        """SIGTERM; the exit status."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(SECONDS)


@contextmanager
def running(kubeconfig: Path, namespace: str, folder: Path, *flags: str) -> Iterator[Operator]:
    """An operator that leads; stopped in the end, and its log shown where it went wrong."""
    operator = Operator(kubeconfig, namespace, folder, *flags)
    try:
        operator.wait_until_leading()
        yield operator
    except BaseException:
        print(operator.logged())
        raise
    finally:
        if operator.process.poll() is None:
            operator.stop()


def manifest(name: str, **spec: Any) -> dict[str, Any]:
    """A DistributedInput."""
    return {
        "apiVersion": "distributed-input.dev/v1alpha1",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": {"dataset": {"entryPoint": "digits:dataset_fn"}, **spec},
    }
