"""A whole cluster, kept between test runs: brought up once, found again by where it is.

`E2E_KUBECONFIG` names one that exists instead (kind, minikube, GKE); then `E2E_OPERATOR_IMAGE`,
`E2E_SIDECAR_IMAGE` and `E2E_WORKER_IMAGE` say what it can pull or already has.
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
class Cluster:
    """Where a cluster is, and its images' names by the Dockerfile's targets.

    plane, node: its parts, for tests that harm them; None where it is not our own.
    """

    kubeconfig: Path
    images: Mapping[str, str]
    plane: ControlPlane | None = None
    node: Node | None = None


def up() -> Cluster:
    """The cluster, with this checkout's images; brought up, or up anew, where it does not run.

    Raises packages.Missing where this machine has none and can have none.
    """
    if given := os.environ.get("E2E_KUBECONFIG"):
        return Cluster(Path(given), {one: _named(one) for one in images.TARGETS})
    packages.require(packages.NODE | packages.IMAGES)
    wanted = [images.image(target) for target in images.TARGETS]
    with lock("cluster"):
        plane, runs = _parts()
        if not (runs.alive() and plane.serves()):
            _down()
            network.set_up()
            plane, runs = _parts()
            plane.start()
            runs.start(images.pause())
        runs.load(*wanted)
    names = {target: image.name for target, image in zip(images.TARGETS, wanted, strict=True)}
    return Cluster(plane.kubeconfig, names, plane, runs)


def down() -> None:
    """Take the cluster away, also what a crash left of it. Raises packages.Missing without root."""
    packages.require(packages.NODE)
    with lock("cluster"):
        _down()


def _down() -> None:
    for pid_file in STATE.glob("*/*.pid"):
        # Nothing of it is kept: no need to say goodbye.
        stop_by_file(pid_file, signal.SIGKILL)
    clean_up(STATE / "node", RUN)
    shutil.rmtree(STATE, ignore_errors=True)


def _parts() -> tuple[ControlPlane, Node]:
    plane = ControlPlane(STATE / "control-plane", address=network.ADDRESS, tied=False)
    return plane, Node(plane, STATE / "node", RUN)


def _named(target: str) -> str:
    setting = f"E2E_{target.upper()}_IMAGE"
    if setting not in os.environ:
        raise packages.Missing(f"E2E_KUBECONFIG is set: set {setting} to an image for it, too")
    return os.environ[setting]
