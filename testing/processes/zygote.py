"""A process that has imported everything and forks the product's processes.

The import of TensorFlow takes seconds of CPU; a fork takes milliseconds. The child runs the real
`main` of its module with production flags. The zygote itself never starts a thread, a channel or an
op, because a fork would copy their state but not their threads.
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

from distributed_input.api.environment import DIE_WITH_PARENT_ENV
from testing.hosts import Host

PACKET_BYTES = 1 << 16


def _child(request: dict[str, Any], channel: socket.socket) -> int:
    """Run the requested `main` in the fork and return its exit status."""
    channel.close()
    os.setsid()
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    log = os.open(request["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(log, 1)
    os.dup2(log, 2)
    os.close(log)
    os.environ.update(request["env"])
    os.environ[DIE_WITH_PARENT_ENV] = "1"
    os.chdir(request["folder"])
    try:
        Host(**request["host"]).enter()
        if request["mutant"]:
            importlib.import_module("testing.chaos.mutants").apply(request["mutant"])
        module = importlib.import_module(request["module"])
        return int(module.main(request["argv"]) or 0)
    except SystemExit as stop:
        return stop.code if isinstance(stop.code, int) else 1
    except BaseException:  # noqa: BLE001 - the child must not continue as a second zygote
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
    """Answer requests until the other end closes. Then kill every child."""
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
    """Import the modules, report that on the channel, and serve."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--channel", type=int, required=True, help="descriptor of a socket")
    parser.add_argument("modules", nargs="*", help="modules to import first")
    args = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the test process ends this one
    channel = socket.socket(fileno=args.channel)
    for name in args.modules:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # children share these pages until one writes to them
    channel.send(b"{}")
    serve(channel)
    return 0


if __name__ == "__main__":
    sys.exit(main())
