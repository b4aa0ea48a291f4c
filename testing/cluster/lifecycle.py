"""Starts and stops a cluster with one node. The cluster keeps running between test runs.

`E2E_KUBECONFIG` selects an existing cluster instead (kind, minikube, GKE). Then
`E2E_OPERATOR_IMAGE`, `E2E_SIDECAR_IMAGE` and `E2E_WORKER_IMAGE` are images that it has or can pull.
"""

from __future__ import annotations

import os
import shutil
import signal
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from testing.cluster import images, network, packages
from testing.cluster.binaries import lock
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import stop_by_file
from testing.cluster.node import Node, clean_up

STATE = Path("/var/lib/distributed-input-cluster")
RUN = Path("/run/distributed-input-cluster")


@dataclass(frozen=True)
class NodeCluster:
    """A running cluster, and its image names by target of the Dockerfile.

    plane, node: its components, for fault tests. None if E2E_KUBECONFIG selects the cluster.
    """

    kubeconfig: Path
    images: Mapping[str, str]
    plane: ControlPlane | None = None
    node: Node | None = None


def up() -> NodeCluster:
    """Return the cluster with this checkout's images. Start or restart it if it does not run.

    Raises packages.MissingRequirement if this machine cannot run one.
    """
    if kubeconfig := os.environ.get("E2E_KUBECONFIG"):
        return NodeCluster(
            Path(kubeconfig), {one: _configured_image(one) for one in images.TARGETS}
        )
    packages.require(packages.NODE | packages.IMAGES)
    built = [images.image(target) for target in images.TARGETS]
    with lock("cluster"):
        plane, node = _parts()
        if not (node.alive() and plane.serves()):
            _down()
            network.set_up()
            plane, node = _parts()
            plane.start()
            node.start(images.pause())
        node.load(*built)
    names = {target: image.name for target, image in zip(images.TARGETS, built, strict=True)}
    return NodeCluster(plane.kubeconfig, names, plane, node)


def down() -> None:
    """Delete the cluster, or the remains of a crashed one.

    Raises packages.MissingRequirement without root.
    """
    packages.require(packages.NODE)
    with lock("cluster"):
        _down()


def _down() -> None:
    for pid_file in STATE.glob("*/*.pid"):
        # All state is deleted: a clean shutdown is not necessary.
        stop_by_file(pid_file, signal.SIGKILL)
    clean_up(STATE / "node", RUN)
    shutil.rmtree(STATE, ignore_errors=True)


def _parts() -> tuple[ControlPlane, Node]:
    plane = ControlPlane(STATE / "control-plane", address=network.ADDRESS, die_with_parent=False)
    return plane, Node(plane, STATE / "node", RUN)


def _configured_image(target: str) -> str:
    setting = f"E2E_{target.upper()}_IMAGE"
    if setting not in os.environ:
        raise packages.MissingRequirement(
            f"E2E_KUBECONFIG is set: set {setting} to an image for it, too"
        )
    return os.environ[setting]
