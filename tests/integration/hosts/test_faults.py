"""Faults of the network between hosts: no row is lost or repeated, and the cause is found."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from testing.hosts import Host, HostsError, network
from testing.hosts.faults import dropping, forgotten, vanished
from testing.hosts.measure import BATCH, FAULTS, read

STEPS, AFTER = 240, 60


def can_drop() -> bool:
    try:
        with network([]) as (host,), dropping(host, "in"):
            return bool(shutil.which("ss"))
    except (HostsError, FileNotFoundError):
        return False


pytestmark = pytest.mark.skipif(not can_drop(), reason="needs root, `ip`, `ss` and `iptables`")
ANSWER = """
import socket, sys, threading
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    while True:
        connection, _ = server.accept()
        answer = lambda one=connection: one.sendall(one.recv(1))
        threading.Thread(target=answer, daemon=True).start()
"""
ASK = """
import socket, sys
connection = socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)
connection.settimeout(1)
sys.stdin.read(1)
connection.sendall(b"x")
sys.exit(connection.recv(1) != b"x")
"""


class Asking:
    """A process on a host with a connection, over which it asks when it is told to."""

    def __init__(self, host: Host, server: Host, port: str) -> None:
        command = host.command([sys.executable, "-S", "-c", ASK, server.address, port])
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stderr=pipe)

    def gets_answer(self) -> bool:
        self._process.communicate(b"x", 20)
        return not self._process.returncode


@contextmanager
def answering(host: Host) -> Iterator[str]:
    """Run a server on a host. Yield its port."""
    command = host.command([sys.executable, "-S", "-c", ANSWER, host.address])
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout
        try:
            yield server.stdout.readline().strip()
        finally:
            server.kill()


def test_a_fault_drops_packets_until_it_ends() -> None:
    with network([], []) as (first, second):
        with answering(first) as port:
            for fault in (vanished(first), dropping(first, "in"), dropping(first, "out")):
                with fault:
                    assert not Asking(second, first, port).gets_answer()
            assert Asking(second, first, port).gets_answer()


def test_connections_that_exist_are_forgotten_and_new_ones_work() -> None:
    with network([], []) as (first, second):
        with answering(first) as port:
            before = Asking(second, first, port)
            while not subprocess.run(
                second.command(["ss", "-Htn", "state", "established"]), capture_output=True
            ).stdout:
                assert before._process.poll() is None
            with forgotten(first):
                assert not before.gets_answer()
                assert Asking(second, first, port).gets_answer()


@pytest.mark.parametrize(
    ("fault", "cause"),
    [
        ("a worker's host vanishes", "its host has not answered for 1.2 s"),
        ("a NAT forgets a worker's connections", ""),
    ],
)
def test_no_row_is_lost_and_none_comes_twice(fault: str, cause: str) -> None:
    found = read(FAULTS[fault], STEPS, AFTER)
    assert sorted(found.rows) == list(range(STEPS * BATCH))
    assert len(found.waits) == STEPS - AFTER + 1
    assert cause in found.causes or not cause
    assert found.causes, "the connections of the worker broke"
