"""Sets up and removes the bridge, control groups, mounts and rules of a node."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testing.cluster.daemon import terminate
from testing.cluster.packages import MissingRequirement

BRIDGE = "dinput0"
POD_RANGE = ipaddress.ip_network("10.244.0.0/24")
ADDRESS = str(POD_RANGE[1])
"""This machine's address on the bridge: the pods' gateway, API server and DNS."""
CGROUP = "distributed-input-cluster"
_CGROUPS = Path("/sys/fs/cgroup")
_SECONDS = 30.0


def set_up() -> None:
    """Create the bridge and the parent control groups of all pods. Call it before pods exist.

    Raises MissingRequirement if root lacks the permissions, as in most containers.
    """
    try:
        _set_up()
    except (subprocess.CalledProcessError, OSError) as error:
        stderr = getattr(error, "stderr", b"") or b""
        reason = stderr.decode(errors="replace").strip() or str(error)
        raise MissingRequirement(
            f"this machine cannot run a node ({reason}): use one with the permissions of a "
            "virtual machine, or set E2E_KUBECONFIG"
        ) from error


def _set_up() -> None:
    if subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True).returncode:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "replace", f"{ADDRESS}/{POD_RANGE.prefixlen}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    list(_groups(create=True))


def tear_down(*folders: Path) -> None:
    """Kill every pod. Remove mounts below `folders`, the bridge, iptables rules and cgroups."""
    for _ in range(10):
        pids = list(_pids())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                terminate(pid, signal.SIGKILL)
        if not pids:
            break
    _end_shims(folders)
    _unmount(folders)
    for group in _groups():
        # Inner groups first.
        for inner in sorted(group.rglob("*/"), reverse=True):
            with contextlib.suppress(OSError):
                inner.rmdir()
        with contextlib.suppress(OSError):
            group.rmdir()
    subprocess.run(["ip", "link", "delete", BRIDGE], capture_output=True, timeout=_SECONDS)
    for family in ("iptables", "ip6tables"):
        _remove_rules(family)


def _remove_rules(family: str) -> None:
    """Remove the chains of kubelet and kube-proxy and the rules that refer to them."""
    result = subprocess.run([f"{family}-save"], capture_output=True, text=True, timeout=_SECONDS)
    remaining = [line for line in result.stdout.splitlines() if "KUBE-" not in line]
    if len(remaining) < len(result.stdout.splitlines()):
        text = "\n".join([*remaining, ""])
        subprocess.run([f"{family}-restore"], input=text, text=True, check=True, timeout=_SECONDS)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)


def _groups(*, create: bool = False) -> Iterator[Path]:
    """Yield our group in each hierarchy: one in cgroup v2, one per controller in v1."""
    if (_CGROUPS / "cgroup.controllers").exists():
        roots = [_CGROUPS]
    else:
        roots = [one for one in _CGROUPS.iterdir() if one.is_dir() and not one.is_symlink()]
    for root in roots:
        group = root / CGROUP
        if create:
            group.mkdir(exist_ok=True)
        if group.is_dir():
            yield group


def _pids() -> Iterator[int]:
    for group in _groups():
        for procs in group.rglob("cgroup.procs"):
            yield from (int(pid) for pid in procs.read_text().split())


def _end_shims(folders: tuple[Path, ...]) -> None:
    """Kill the containerd shims. They are orphans without pid files."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
            ours = any(word.startswith(f"{folder}/") for word in words for folder in folders)
            if "containerd-shim" in words[0] and ours:
                terminate(int(cmdline.parent.name), signal.SIGKILL)


def _unmount(folders: tuple[Path, ...]) -> None:
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in reversed(mounted):
        # The kernel writes a space as \040; our own paths have none.
        if any(path.startswith(f"{folder}/") for folder in folders):
            subprocess.run(["umount", "--lazy", path], capture_output=True, timeout=_SECONDS)
