"""Faults of the network of a host: packets that are dropped, and a host that vanishes.

`tc` limits rates (`tbf`). Delays need the kernel module sch_netem, which is not everywhere.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator

from testing.hosts import Host, HostsError


@contextlib.contextmanager
def vanished(host: Host) -> Iterator[None]:
    """Take a host off the network. Its connections stay open, as after a loss of power."""
    _run(host, "ip", "link", "set", "eth0", "down")
    try:
        yield
    finally:
        _run(host, "ip", "link", "set", "eth0", "up")


@contextlib.contextmanager
def dropping(host: Host, direction: str, *match: str) -> Iterator[None]:
    """Drop packets of a host.

    Args:
        host: the host.
        direction: `in` or `out`.
        match: options of iptables, for example `-s` and an address, `-p tcp --dport` and a port, or
            `-m statistic --mode random --probability 0.05`. Default: all packets.
    """
    chain, option = {"in": ("INPUT", "-i"), "out": ("OUTPUT", "-o")}[direction]
    rule = [chain, option, "eth0", *match, "-j", "DROP"]
    _run(host, "iptables", "--wait", "-I", *rule)
    try:
        yield
    finally:
        _run(host, "iptables", "--wait", "-D", *rule)


@contextlib.contextmanager
def forgotten(host: Host) -> Iterator[None]:
    """Drop all packets of the connections that a host has now, as a NAT that has forgotten them.

    New connections work.
    """
    lines = _run(host, "ss", "-Htn", "state", "established").splitlines()
    ports = [[end.rpartition(":")[2] for end in line.split()[2:4]] for line in lines]
    with contextlib.ExitStack() as rules:
        for own, other in ports:
            rules.enter_context(
                dropping(host, "in", *f"-p tcp --dport {own} --sport {other}".split())
            )
            rules.enter_context(
                dropping(host, "out", *f"-p tcp --sport {own} --dport {other}".split())
            )
        yield


def _run(host: Host, *command: str) -> str:
    done = subprocess.run(host.command(command), capture_output=True, text=True)
    if done.returncode:
        raise HostsError(f"`{' '.join(command)}` on {host.name} failed: {done.stderr.strip()}")
    return done.stdout
