"""Hosts as network namespaces: who reaches whom, their CPUs, and what a crash leaves."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from testing import hosts
from testing.hosts import Host, HostsError, network, remove_leftovers
from testing.processes.forks import Fork

CPUS = sorted(os.sched_getaffinity(0))


def can_create() -> bool:
    try:
        with network([]):
            return True
    except HostsError:
        return False


needs_namespaces = pytest.mark.skipif(not can_create(), reason="needs root and `ip`")
CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 1)"
SERVE = """
import socket, sys
with socket.create_server((sys.argv[1], 0)) as server:
    print(server.getsockname()[1], flush=True)
    sys.stdin.read()
"""


def connects(host: Host, address: str, port: str) -> bool:
    command = host.command([sys.executable, "-S", "-c", CONNECT, address, port])
    return not subprocess.run(command, stderr=subprocess.DEVNULL).returncode


@needs_namespaces
@pytest.mark.parametrize("loopback", [False, True])
def test_hosts_reach_each_other_at_their_addresses_only(loopback):
    with network([], []) as (first, second):
        address = "127.0.0.1" if loopback else first.address
        command = first.command([sys.executable, "-S", "-c", SERVE, address])
        with subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        ) as server:
            assert server.stdin
            assert server.stdout
            port = server.stdout.readline().strip()
            assert connects(first, address, port)
            assert connects(second, address, port) is not loopback
            assert not connects(Host(), address, port)
            server.stdin.close()


@needs_namespaces
def test_processes_of_a_host_have_its_cpus_and_its_network():
    with network(CPUS[-1:]) as (host,):

        def entered() -> str:
            host.enter()
            interfaces = sorted(os.listdir("/proc/self/net/dev_snmp6"))
            return f"{os.readlink('/proc/self/ns/net')} {os.sched_getaffinity(0)} {interfaces}"

        show = (
            "import os; print(os.readlink('/proc/self/ns/net'), os.sched_getaffinity(0), "
            "sorted(os.listdir('/proc/self/net/dev_snmp6')))"
        )
        command = host.command([sys.executable, "-S", "-c", show])
        done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
        assert done.stdout.strip() == Fork(entered).result()
        namespace, cpus, interfaces = done.stdout.strip().split(" ", 2)
        assert namespace != os.readlink("/proc/self/ns/net")
        assert cpus == str({CPUS[-1]})
        assert interfaces == "['eth0', 'lo']"


def test_a_command_without_a_namespace_or_cpus_is_unchanged():
    assert Host().command(["true"]) == ["true"]
    assert Host(cpus=(1, 3)).command(["true"]) == ["taskset", "--cpu-list", "1,3", "true"]


@needs_namespaces
def test_a_network_is_removed_at_its_end_and_after_an_error():
    def names() -> list[str]:
        return sorted(path.name for path in Path("/run/netns").glob(f"di-host-{os.getpid()}-*"))

    with network([]) as (host,):
        assert host.name in names()
    assert names() == []
    with pytest.raises(RuntimeError, match="measurement"), network([]):
        raise RuntimeError("a measurement failed")
    assert names() == []


@needs_namespaces
def test_the_next_network_removes_what_a_crash_left():
    code = "import os; from testing.hosts import network\nwith network([]): os.kill(os.getpid(), 9)"
    crashed = subprocess.Popen([sys.executable, "-c", code], cwd=Path(__file__).parents[3])
    crashed.wait()
    left = sorted(path.name for path in Path("/run/netns").glob(f"di-host-{crashed.pid}-*"))
    assert left == [f"di-host-{crashed.pid}-{name}" for name in ("1", "bridge")]
    with network([]) as (host,):  # of a live process
        assert not list(Path("/run/netns").glob(f"di-host-{crashed.pid}-*"))
        remove_leftovers()
        assert (Path("/run/netns") / host.name).exists()


def test_without_root_or_programs_the_error_says_so(monkeypatch):
    monkeypatch.setattr(hosts.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(hosts.shutil, "which", lambda program: f"/bin/{program}")
    with pytest.raises(HostsError, match="need root"), network([]):
        pass
    monkeypatch.setattr(hosts.shutil, "which", lambda program: None if program == "ip" else "x")
    with pytest.raises(HostsError, match="need the programs: ip"), network([]):
        pass


@needs_namespaces
def test_a_shell_runs_on_the_first_host_and_knows_the_others():
    command = [sys.executable, "-m", "testing.hosts", "shell", "3"]
    lines = "ip -4 -o address show eth0\n$HOST3 ip -4 -o address show eth0\necho $ADDRESS3\n"
    done = subprocess.run(
        command, input=lines, env={**os.environ, "SHELL": "/bin/sh"}, capture_output=True, text=True
    )
    first, third, address = done.stdout.splitlines()
    assert "10.77.0.1/24" in first
    assert "10.77.0.3/24" in third
    assert (address, done.returncode) == ("10.77.0.3", 0)
