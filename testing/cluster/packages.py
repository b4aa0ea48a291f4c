"""Installs missing Debian packages for the node and the images."""

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
"""Packages that a node needs: package → a program in it."""
IMAGES = {"buildah": "buildah", "mmdebstrap": "mmdebstrap"}
"""Packages that build images: package → a program in it."""
_SECONDS = 600.0


class MissingRequirement(Exception):
    """This machine lacks a requirement of the cluster. The message has one line."""


def require(packages: dict[str, str]) -> None:
    """Install missing packages. Raises MissingRequirement if this process cannot."""
    missing = [name for name, program in packages.items() if not shutil.which(program)]
    if os.geteuid() != 0:
        raise MissingRequirement(
            "a node and its images need root: run this as root, or set E2E_KUBECONFIG"
        )
    if not missing:
        return
    if not shutil.which("apt-get"):
        raise MissingRequirement(
            f"this machine has no {', '.join(missing)} and no apt-get: install them"
        )
    env = {**os.environ, "DEBIAN_FRONTEND": "noninteractive"}
    install = ["apt-get", "install", "--yes", "--quiet=2", "--no-install-recommends", *missing]
    with lock("apt"):
        for command in (["apt-get", "update", "--quiet=2"], install):
            result = subprocess.run(
                command, env=env, capture_output=True, text=True, timeout=_SECONDS
            )
            # An unreachable source matters only if the installation fails.
            if result.returncode and command is install:
                raise MissingRequirement(
                    f"apt-get could not install {', '.join(missing)}: {result.stderr}"
                )
