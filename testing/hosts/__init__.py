"""Hosts on this machine: network namespaces that a bridge joins.

    with network([0], [1]) as (first, second):  # the CPUs of each host
        subprocess.Popen(first.command(["python", "-m", "http.server"]))

A host has an IPv4 address, which only the other hosts of its network reach, and its own loopback
interface. Processes of all hosts share files, process ids and memory. The names of the namespaces
contain the process id of their owner, so that the next network removes what a crash left. `tc` can
change how a host's interface `eth0` behaves: `ip netns exec NAME tc qdisc add dev eth0 …`.

Needs root and the programs `ip`, `nsenter` and `taskset`.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import subprocess
from collections.abc import Collection, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

_PREFIX = "di-host-"
_NAMESPACES = Path("/run/netns")  # where `ip netns` mounts them
_CLONE_NEWNET = 0x40000000
_PROGRAMS = ("ip", "nsenter", "taskset")


class HostsError(Exception):
    """This machine or this user cannot create network namespaces."""


@dataclass(frozen=True)
class Host:
    """Where a process runs."""

    name: str = ""
    """Its network namespace. Empty: that of the caller."""
    address: str = "127.0.0.1"
    """Its IPv4 address."""
    cpus: Sequence[int] = ()
    """CPUs of its processes. Empty: those of the caller."""

    def command(self, argv: Sequence[str]) -> list[str]:
        """Return the command that runs `argv` on this host, with the same process id."""
        found = ["nsenter", f"--net={_NAMESPACES / self.name}"] if self.name else []
        if self.cpus:
            found += ["taskset", "--cpu-list", ",".join(map(str, self.cpus))]
        return [*found, *argv]

    def enter(self) -> None:
        """Move this process to the host. It must have one thread."""
        if self.name:
            libc = ctypes.CDLL(None, use_errno=True)
            with (_NAMESPACES / self.name).open() as namespace:
                if libc.setns(namespace.fileno(), _CLONE_NEWNET):
                    raise OSError(ctypes.get_errno(), f"setns to host {self.name} failed")
        if self.cpus:
            os.sched_setaffinity(0, self.cpus)

    def to_json(self) -> dict[str, Any]:
        """Return the arguments of an equal host."""
        return asdict(self)


THIS_HOST = Host()


@contextlib.contextmanager
def network(*cpus: Collection[int]) -> Iterator[list[Host]]:
    """Create one host for each collection of CPUs. Remove them at the end.

    Raises HostsError.
    """
    _check()
    remove_leftovers()
    # The bridge has a namespace too: firewall rules of this machine would apply to it elsewhere.
    bridge = f"{_PREFIX}{os.getpid()}-bridge"
    hosts = [
        Host(f"{_PREFIX}{os.getpid()}-{number}", f"10.77.0.{number}", sorted(some))
        for number, some in enumerate(cpus, 1)
    ]
    try:
        _ip("netns", "add", bridge)
        _ip("-n", bridge, "link", "add", "bridge", "type", "bridge")
        _ip("-n", bridge, "link", "set", "bridge", "up")
        for host in hosts:
            _add(host, bridge)
        yield hosts
    finally:
        for name in (*(host.name for host in hosts), bridge):
            _remove(name)


def remove_leftovers() -> list[str]:
    """Remove the namespaces whose owners have ended, and return their names."""
    removed = []
    for path in _NAMESPACES.glob(f"{_PREFIX}*"):
        owner = path.name.removeprefix(_PREFIX).split("-")[0]
        if not Path(f"/proc/{owner}").exists():
            _remove(path.name)
            removed.append(path.name)
    return sorted(removed)


def _check() -> None:
    missing = [program for program in _PROGRAMS if not shutil.which(program)]
    if missing:
        raise HostsError(f"network namespaces need the programs: {', '.join(missing)}")
    if os.geteuid():
        raise HostsError("network namespaces need root")


def _add(host: Host, bridge: str) -> None:
    port = host.name.rpartition("-")[2]
    _ip("netns", "add", host.name)
    _ip(*f"link add eth0 netns {host.name} type veth peer name port{port} netns {bridge}".split())
    _ip("-n", bridge, "link", "set", f"port{port}", "master", "bridge", "up")
    _ip("-n", host.name, "address", "add", f"{host.address}/24", "dev", "eth0")
    for interface in ("lo", "eth0"):
        _ip("-n", host.name, "link", "set", interface, "up")


def _remove(name: str) -> None:
    """Remove a namespace, if it exists. Its interfaces end with its last process."""
    if (_NAMESPACES / name).exists():
        _ip("netns", "delete", name)


def _ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], capture_output=True, text=True)
    if done.returncode:
        raise HostsError(f"`ip {' '.join(arguments)}` failed: {done.stderr.strip()}")
