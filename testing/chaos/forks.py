"""Processes that start in milliseconds, and what has to be known of them."""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from testing.chaos.zygote import PACKET_BYTES

REPO = Path(__file__).parents[2]
_IMPORT_SECONDS = 180.0
_READY_SECONDS = 30.0
_LOOK_MS = 5  # nothing tells of a new file without polling


class ProcessError(Exception):
    """A process did not do what it should; the message ends with its log's end."""


class Process:
    """One part's process, a fork of a zygote."""

    def __init__(self, zygote: Zygote, name: str, pid: int, log: Path, ready: Path) -> None:
        self.name, self.pid, self.log = name, pid, log
        self._zygote = zygote
        self._ready = ready
        self._descriptor = os.pidfd_open(pid)
        self._lock = threading.Lock()
        self._status: int | None = None

    def ready(self) -> dict[str, Any]:
        """What it wrote when it began to serve. Raises ProcessError."""
        deadline = time.monotonic() + _READY_SECONDS
        while not self._ready.exists():
            if self._ended_within_ms(_LOOK_MS):
                raise ProcessError(f"{self.name} ended with {self.wait(1)}:\n{self.tail()}")
            if time.monotonic() > deadline:
                raise ProcessError(f"{self.name} is not ready:\n{self.tail()}")
        found: dict[str, Any] = json.loads(self._ready.read_text())
        return found

    @property
    def alive(self) -> bool:
        """Whether it has not ended; a stopped process is alive."""
        return self._status is None and not self._ended_within_ms(0)

    def signal(self, number: int) -> None:
        """Send a signal, if it lives."""
        with self._lock, contextlib.suppress(ProcessLookupError):
            if self._status is None:
                signal.pidfd_send_signal(self._descriptor, number)

    def kill(self) -> None:
        """SIGKILL; returns when it is gone."""
        self.signal(signal.SIGKILL)
        self.wait(10)

    def wait(self, seconds: float) -> int:
        """Its exit status; of a signal negative. Raises ProcessError if it goes on running."""
        with self._lock:
            if self._status is None:
                if not self._ended_within_ms(int(seconds * 1000)):
                    raise ProcessError(f"{self.name} runs on:\n{self.tail()}")
                self._status = self._zygote.ask({"wait": self.pid})["status"]
                os.close(self._descriptor)
            return self._status

    def tail(self) -> str:
        """The end of its log."""
        return self.log.read_text(errors="replace")[-3000:] if self.log.exists() else "(no log)"

    def _ended_within_ms(self, milliseconds: int) -> bool:
        if self._status is not None:
            return True
        waiting = select.poll()
        waiting.register(self._descriptor, select.POLLIN)
        return bool(waiting.poll(milliseconds))


class Zygote:
    """A process that forks others on request; thread-safe."""

    def __init__(self, heavy: bool) -> None:
        self._lock = threading.Lock()
        self._channel, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        paths = [str(REPO), str(REPO / "sidecar" / "src"), os.environ.get("PYTHONPATH", "")]
        self._process = subprocess.Popen(
            [sys.executable, "-m", "testing.chaos.zygote", "--channel", str(theirs.fileno())]
            + (["--heavy"] if heavy else []),
            pass_fds=[theirs.fileno()],
            stdin=subprocess.DEVNULL,
            env={
                "TF_CPP_MIN_LOG_LEVEL": "2",
                **os.environ,
                "PYTHONPATH": ":".join(filter(None, paths)),
                "CUDA_VISIBLE_DEVICES": "-1",
            },
        )
        theirs.close()
        self._channel.settimeout(_IMPORT_SECONDS)

    def wait_imported(self) -> None:
        """Wait until it can fork. Raises ProcessError."""
        if not self._channel.recv(PACKET_BYTES):
            raise ProcessError("the zygote ended: see its stderr above")

    def ask(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to one request. Raises ProcessError."""
        with self._lock:
            self._channel.send(json.dumps(request).encode())
            answer: dict[str, Any] = json.loads(self._channel.recv(PACKET_BYTES) or b"{}")
        if not answer:
            raise ProcessError("the zygote ended: see its stderr above")
        return answer

    def close(self) -> None:
        """End it; what it forked ends with it."""
        self._channel.close()
        self._process.wait(20)


class Forks:
    """Both zygotes: with TensorFlow for the workers, without for the rest. A context manager."""

    def __init__(self) -> None:
        self._light, self._heavy = Zygote(heavy=False), Zygote(heavy=True)
        for zygote in (self._light, self._heavy):  # imports are no part of a schedule's time
            zygote.wait_imported()

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
    ) -> Process:
        """Start `module`.main(argv), with --ready-file; its log is `folder`/`name`.log."""
        zygote = self._heavy if heavy else self._light
        log, ready = folder / f"{name}.log", folder / f"{name}.ready"
        ready.unlink(missing_ok=True)
        answer = zygote.ask(
            {
                "module": module,
                "argv": [*argv, "--ready-file", str(ready)],
                "env": dict(env or {}),
                "folder": str(folder),
                "log": str(log),
                "mutant": mutant,
            }
        )
        return Process(zygote, name, answer["pid"], log, ready)

    def close(self) -> None:
        """End the zygotes and all that they forked."""
        self._light.close()
        self._heavy.close()

    def __enter__(self) -> Forks:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
