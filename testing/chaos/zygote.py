"""A process that has imported everything and forks the parts: `python -m testing.chaos.zygote`.

TensorFlow takes seconds of CPU to import; a fork takes milliseconds. What runs in the child is
the part's real `main` with the flags it has in production. The zygote itself never starts a
thread, a channel or an op, so that there is nothing a fork could tear.
"""

from __future__ import annotations

import argparse
import contextlib
import gc
import importlib
import json
import os
import signal
import socket
import sys
import traceback
from typing import Any

from distributed_input.runtime.shutdown import DIE_WITH_PARENT_ENV

PACKET_BYTES = 1 << 16
_LIGHT = ("distributed_input.dispatcher.main", "distributed_input.sidecar.main")
_HEAVY = ("tensorflow", "distributed_input.worker.main", "distributed_input.worker.serve")


def _child(request: dict[str, Any], channel: socket.socket) -> int:
    """In the fork: become the part. Returns its exit status."""
    channel.close()
    os.setsid()
    signal.set_wakeup_fd(-1)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["env"])
    os.environ[DIE_WITH_PARENT_ENV] = "1"
    os.chdir(request["folder"])
    try:
        if request["mutant"]:
            importlib.import_module("testing.chaos.mutants").apply(request["mutant"])
        module = importlib.import_module(request["module"])
        return int(module.main(request["argv"]) or 0)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the child must not go on as a second zygote
        traceback.print_exc()
        return 70


def _flush() -> None:
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):
            stream.flush()


def _start(request: dict[str, Any], channel: socket.socket) -> dict[str, Any]:
    pid = os.fork()
    if pid == 0:
        status = _child(request, channel)
        _flush()
        os._exit(status)
    return {"pid": pid}


def serve(channel: socket.socket) -> None:
    """Answer requests until the harness is gone; nothing outlives it."""
    children: set[int] = set()
    while True:
        packet = channel.recv(PACKET_BYTES)
        if not packet:
            break
        request = json.loads(packet)
        if "wait" in request:
            pid = request["wait"]
            answer = {"status": os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])}
            children.discard(pid)
        else:
            answer = _start(request, channel)
            children.add(answer["pid"])
        channel.send(json.dumps(answer).encode())
    for pid in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def main() -> int:
    """Import, say so, serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True, help="descriptor of a socket")
    parser.add_argument("--heavy", action="store_true", help="with TensorFlow")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the harness ends us
    channel = socket.socket(fileno=args.channel)
    for name in _LIGHT if not args.heavy else _HEAVY:
        importlib.import_module(name)
    importlib.import_module("testing.chaos.rows")
    gc.collect()
    gc.freeze()  # children share these pages until one writes to them
    channel.send(b"{}")
    serve(channel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
