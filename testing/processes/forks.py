"""Start the product's processes as forks of a process that has imported everything.

A program of the tests that runs so gets its arguments with `own_arguments` and returns results with
`write_results`.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from distributed_input.api.environment import GRPC_CIPHERS_ENV, NO_TLS_1_2
from distributed_input.runtime import addresses
from testing.hosts import THIS_HOST, Host
from testing.processes.zygote import PACKET_BYTES

REPO = Path(__file__).parents[2]
READY_SECONDS = 90.0
_IMPORT_SECONDS = 180.0
_FORK_SECONDS = 20  # after which a `Fork` that hangs is ended
_POLL_MS = 5  # the kernel reports the end of a process, but no new file


class ProcessError(Exception):
    """A process failed. The message contains the end of its log."""


class Process:
    """One process of the product, a fork of a zygote.

    Attributes:
        name: used in messages.
        pid: process id.
        log: file that gets stdout and stderr.
    """

    def __init__(self, zygote: Zygote, name: str, pid: int, log: Path, ready: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self._zygote = zygote
        self._ready = ready
        self._descriptor = os.pidfd_open(pid)
        self._lock = threading.Lock()
        self._status: int | None = None

    def ready(self) -> dict[str, Any]:
        """Wait for the ready file and return its content. Raises ProcessError."""
        deadline = time.monotonic() + READY_SECONDS
        while not self._ready.exists():
            if self._ended_within_ms(_POLL_MS):
                raise ProcessError(f"{self.name} ended with {self.wait(1)}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} is not ready:\n{self.tail()}")
        found: dict[str, Any] = json.loads(self._ready.read_text())
        return found

    @property
    def alive(self) -> bool:
        """Whether the process has not ended. A stopped process is alive."""
        return self._status is None and not self._ended_within_ms(0)

    def signal(self, number: int) -> None:
        """Send a signal, if the process is alive."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._status is None:
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """Send SIGKILL and wait for the end."""
        self.signal(signal.SIGKILL)
        self.wait(10)

    def wait(self, seconds: float) -> int:
        """Wait for the end and return the exit status, negative after a signal.

        Raises ProcessError if the process does not end in time.
        """
        with self._lock:
            if self._status is None:
                if not self._ended_within_ms(int(seconds * 1000)):
                    raise ProcessError(f"{self.name} has not ended:\n{self.tail()}")
                self._status = self._zygote.wait(self.pid)
                os.close(self._descriptor)
            return self._status

    def tail(self) -> str:
        """Return the end of the log."""
        return self.log.read_text(errors="replace")[-4000:] if self.log.exists() else "(no log)"

    def _ended_within_ms(self, milliseconds: int) -> bool:
        if self._status is not None:
            return True
        poll = select.poll()
        poll.register(self._descriptor, select.POLLIN)
        return bool(poll.poll(milliseconds))


class Zygote:
    """A process that forks others on request. Thread-safe.

    Args:
        modules: what it imports before the first fork.
    """

    def __init__(self, modules: Sequence[str]) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [os.environ.get("PYTHONPATH", ""), str(REPO), str(REPO / "sidecar" / "src")]
        command = [sys.executable, "-m", "testing.processes.zygote"]
        self._process = subprocess.Popen(
            [*command, "--channel", str(theirs.fileno()), *modules],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={
                "TF_CPP_MIN_LOG_LEVEL": "2",
                **os.environ,
                "PYTHONPATH": ":".join(filter(None, paths)),
                "CUDA_VISIBLE_DEVICES": "-1",
                GRPC_CIPHERS_ENV: NO_TLS_1_2,  # as in the pods of encrypted inputs
            },
        )
        theirs.close()
        self._channel.settimeout(_IMPORT_SECONDS)

    def wait_imported(self) -> None:
        """Wait until the zygote can fork. Raises ProcessError."""
        if not self._channel.recv(PACKET_BYTES):
            raise ProcessError("the zygote ended: see its stderr above")

    def start(
        self,
        name: str,
        module: str,
        argv: Sequence[str],
        *,
        log: Path,
        ready: Path,
        env: Mapping[str, str] | None = None,
        mutant: str = "",
        host: Host = THIS_HOST,
    ) -> Process:
        """Run `module`.main(argv) in a fork, in the folder of `log`. Raises ProcessError."""
        request = {"module": module, "argv": list(argv), "env": dict(env or {}), "mutant": mutant}
        request |= {"folder": str(log.parent), "log": str(log), "host": host.to_json()}
        return Process(self, name, self._ask(request)["pid"], log, ready)

    def wait(self, pid: int) -> int:
        """Return the exit status of a fork that has ended, once. Raises ProcessError."""
        status: int = self._ask({"wait": pid})["status"]
        return status

    def _ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        with self._lock:
            self._channel.send(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(self._channel.recv(PACKET_BYTES) or b"{}")
        if not answer:
            raise ProcessError("the zygote ended: see its stderr above")
        return answer

    def close(self) -> None:
        """End the zygote and every process that it forked."""
        self._channel.close()
        self._process.wait(20)


_LIGHT = ("distributed_input.dispatcher.main", "distributed_input.sidecar.main")
_HEAVY = ("tensorflow", "distributed_input.worker.main", "distributed_input.worker.serve")


class Forks:
    """Two zygotes: one with TensorFlow for workers, one without for all else. A context manager.

    Args:
        modules: more modules that both import before the first fork.
        lazy: start each zygote with its first process; default: start both at once and wait.
    """

    def __init__(
        self, modules: Sequence[str] = ("testing.chaos.rows",), *, lazy: bool = False
    ) -> None:
        self._modules = {False: (*_LIGHT, *modules), True: (*_HEAVY, *modules)}
        self._zygotes: dict[bool, Zygote] = {}
        self._lock = threading.Lock()
        if not lazy:
            self._zygotes = {heavy: Zygote(names) for heavy, names in self._modules.items()}
            for zygote in self._zygotes.values():  # imports do not count in a schedule's time
                zygote.wait_imported()

    def _zygote(self, heavy: bool) -> Zygote:
        with self._lock:
            if heavy not in self._zygotes:
                zygote = Zygote(self._modules[heavy])
                zygote.wait_imported()
                self._zygotes[heavy] = zygote
            return self._zygotes[heavy]

    def start(
        self,
        module: str,
        name: str,
        folder: Path,
        argv: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        mutant: str = "",
        heavy: bool = False,
        host: Host = THIS_HOST,
    ) -> Process:
        """Start `module`.main(argv) with --ready-file. Its log is `folder`/`name`.log."""
        zygote = self._zygote(heavy)
        log, ready = folder / f"{name}.log", folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        argv = [*argv, "--ready-file", str(ready)]
        return zygote.start(
            name, module, argv, log=log, ready=ready, env=env, mutant=mutant, host=host
        )

    def close(self) -> None:
        """End the zygotes and every process that they forked."""
        for zygote in self._zygotes.values():
            zygote.close()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


@functools.cache
def shared() -> Forks:
    """Return the zygotes of this process, which start on demand and end when it exits."""
    forks = Forks(modules=(), lazy=True)
    atexit.register(forks.close)
    return forks


def own_arguments(argv: Sequence[str]) -> tuple[list[str], Path]:
    """Return the arguments that a program got from `Forks.start`, and its ready file."""
    *own, flag, path = argv
    assert flag == "--ready-file", argv
    return own, Path(path)


def write_results(path: Path, results: Any) -> None:
    """Write JSON to the ready file in one step, so that a reader never sees a part of it."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(results))
    part.rename(path)


class Fork:
    """A fork of this process that runs `body`, as PyTorch and multiprocessing do.

    It then ends without any cleanup.
    """

    def __init__(self, body: Callable[[], str]) -> None:
        self._pipe, write = os.pipe()
        with warnings.catch_warnings():
            # Later versions of Python warn if the process has threads.
            warnings.simplefilter("ignore", DeprecationWarning)
            self._pid = os.fork()
        if not self._pid:
            self._run(body, write)
        os.close(write)

    @staticmethod
    def _run(body: Callable[[], str], write: int) -> None:
        signal.alarm(_FORK_SECONDS)  # ends a fork that hangs
        try:
            text = body()
        except BaseException as error:  # noqa: BLE001
            text = f"{type(error).__name__}: {error}"
        os.write(write, text.encode())
        os._exit(0)

    def result(self) -> str:
        """Wait for the end and return the text of `body`, or its error as `Class: message`."""
        with os.fdopen(self._pipe, "rb") as pipe:
            text = pipe.read().decode()
        _, status = os.waitpid(self._pid, 0)
        assert status == 0, f"the fork ended with {status}: {text}"
        return text


def own_address() -> str:
    """Return an address of this machine that is not a loopback address; "": it has none.

    Packets to it use the loopback interface, too.
    """
    try:
        found = addresses.own_address_towards("192.0.2.1", 9)
    except OSError:
        return ""
    return "" if addresses.is_loopback(f"{found}:9") else found
