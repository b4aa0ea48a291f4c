"""What a node needs of this machine besides processes, and how to take it away again."""

from __future__ import annotations

import contextlib
import ipaddress
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path

from testing.cluster.daemon import end
from testing.cluster.packages import Missing

BRIDGE = "dinput0"
POD_RANGE = ipaddress.ip_network("10.244.0.0/24")
ADDRESS = str(POD_RANGE[1])
"""The machine's own among the pods: their gateway, and where the API server and DNS listen."""
CGROUP = "distributed-input-cluster"
_CGROUPS = Path("/sys/fs/cgroup")
_SECONDS = 30.0


def set_up() -> None:
    """Make the bridge, before there are pods, and the control groups that all pods are in.

    Raises Missing where even root may not: in most containers.
    """
    try:
        _set_up()
    except (subprocess.CalledProcessError, OSError) as error:
        said = getattr(error, "stderr", b"") or b""
        why = said.decode(errors="replace").strip() or str(error)
        raise Missing(
            f"this machine lets nobody make a node ({why}): use one with the rights of a virtual "
            "machine, or set E2E_KUBECONFIG"
        ) from error


def _set_up() -> None:
    if subprocess.run(["ip", "link", "show", BRIDGE], capture_output=True).returncode:
        _run("ip", "link", "add", BRIDGE, "type", "bridge")
    _run("ip", "address", "replace", f"{ADDRESS}/{POD_RANGE.prefixlen}", "dev", BRIDGE)
    _run("ip", "link", "set", BRIDGE, "up")
    Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
    list(_groups(create=True))


def tear_down(*folders: Path) -> None:
    """End every pod, and take away its mounts below `folders`, the bridge, rules and groups."""
    for _ in range(10):
        pids = list(_pids())
        for pid in pids:
            with contextlib.suppress(ProcessLookupError):
                end(pid, signal.SIGKILL)
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
        _forget_rules(family)


def _forget_rules(family: str) -> None:
    """Take away what kubelet and kube-proxy wrote: their chains, and the rules that lead there."""
    saved = subprocess.run([f"{family}-save"], capture_output=True, text=True, timeout=_SECONDS)
    kept = [line for line in saved.stdout.splitlines() if "KUBE-" not in line]
    if len(kept) < len(saved.stdout.splitlines()):
        text = "\n".join([*kept, ""])
        subprocess.run([f"{family}-restore"], input=text, text=True, check=True, timeout=_SECONDS)


def _run(*command: str) -> None:
    subprocess.run(command, check=True, capture_output=True, timeout=_SECONDS)


def _groups(*, create: bool = False) -> Iterator[Path]:
    """Our group in every hierarchy: one in version 2, one a controller in version 1."""
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
    """The processes that hold containers: nobody is their parent, and no file names them."""
    for cmdline in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(FileNotFoundError, ProcessLookupError):
            words = cmdline.read_bytes().decode(errors="replace").split("\0")
            ours = any(word.startswith(f"{folder}/") for word in words for folder in folders)
            if "containerd-shim" in words[0] and ours:
                end(int(cmdline.parent.name), signal.SIGKILL)


def _unmount(folders: tuple[Path, ...]) -> None:
    mounted = [line.split()[1] for line in Path("/proc/self/mounts").read_text().splitlines()]
    for path in reversed(mounted):
        # The kernel writes a space as \040; our own paths have none.
        if any(path.startswith(f"{folder}/") for folder in folders):
            subprocess.run(["umount", "--lazy", path], capture_output=True, timeout=_SECONDS)
