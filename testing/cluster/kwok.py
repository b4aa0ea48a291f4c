"""Fake nodes: kwok reports that they are Ready and that their pods run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from kubernetes import client as kubernetes

from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import Daemon

_FAKE_ANNOTATION = "kwok.x-k8s.io/node"


class FakeNodes:
    """Fake nodes of `plane`. Their pods run no containers. Use it as a context manager.

    Attributes: `daemon`, the kwok process.
    """

    def __init__(self, plane: ControlPlane, cidr: str = "10.0.0.1/24") -> None:
        """Prepare the process. cidr: the pods' address range."""
        self._plane = plane
        argv: list[str | Path] = [
            *(binary("kwok"), f"--kubeconfig={plane.kubeconfig}"),
            f"--cidr={cidr}",
            # Do not change real nodes.
            *(
                "--manage-all-nodes=false",
                f"--manage-nodes-with-annotation-selector={_FAKE_ANNOTATION}=fake",
            ),
        ]
        self.daemon = Daemon(plane.folder, "kwok", argv, die_with_parent=True)
        self._names: list[str] = []

    def __enter__(self) -> FakeNodes:
        self.daemon.start()
        return self

    def __exit__(self, *_: object) -> None:
        with self._plane.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            for name in self._names:
                core.delete_node(name)
        self.daemon.stop()

    def add(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
    ) -> None:
        """Add one node. `capacity` extends 32 CPUs, 256 GiB and 110 pods, with accelerators say."""
        resources = {"cpu": "32", "memory": "256Gi", "pods": "110", **(capacity or {})}
        usual = {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux"}
        node = {
            "metadata": {
                "name": name,
                "annotations": {_FAKE_ANNOTATION: "fake"},
                "labels": {**usual, **(labels or {})},
            },
            "spec": {"taints": taints or []},
            "status": {"allocatable": resources, "capacity": resources},
        }
        with self._plane.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            core.create_node(node)
        self._names.append(name)
