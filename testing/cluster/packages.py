"""Debian packages that the node and the images need, installed where they are missing."""

from __future__ import annotations

import os
import shutil
import subprocess

from testing.cluster.binaries import lock

NODE = {
    "containerd": "containerd",
    "runc": "runc",
    "containernetworking-plugins": "/usr/lib/cni/bridge",
    "iptables": "iptables",
    "conntrack": "conntrack",
    "iproute2": "ip",
    "kmod": "modprobe",
}
"""What a node runs on: package → a program that it brings."""
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""What images are built with."""
_SECONDS = 600.0


class Missing(Exception):
    """What the cluster needs and this machine lacks; one line."""


def require(packages: dict[str, str]) -> None:
    """Install what is missing. Raises Missing where this process may not or cannot."""
    absent = [name for name, program in packages.items() if not shutil.which(program)]
    if os.geteuid() != 0:
        raise Missing("a node and its images need root: run this as root, or set E2E_KUBECONFIG")
    if not absent:
        return
    if not shutil.which("apt-get"):
        raise Missing(f"this machine has no {', '.join(absent)} and no apt-get: install them")
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *absent]
    with lock("apt"):
        for command in (["apt-get", "update", "--quiet=2"], install):
            done = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=_SECONDS
            )
            # A source that cannot be reached matters only if the install then fails.
            if done.returncode and command is install:
                raise Missing(f"apt-get could not install {', '.join(absent)}: {done.stderr}")
