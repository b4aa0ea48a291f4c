"""Nodes that are only pretended: kwok says that they are Ready and that their pods run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from kubernetes import client as kubernetes

from testing.cluster.binaries import binary
from testing.cluster.control_plane import ControlPlane
from testing.cluster.daemon import Daemon

_FAKE = "kwok.x-k8s.io/node"


class FakeNodes:
    """Pretended nodes of `plane`; its pods run nothing. Use it as a context manager.

    Attributes: `daemon`, the process.
    """

    def __init__(self, plane: ControlPlane, cidr: str = "10.0.0.1/24") -> None:
        """`cidr`: where pods get their addresses."""
        self._plane = plane
        argv: list[str | Path] = [
            *(binary("kwok"), f"--kubeconfig={plane.kubeconfig}"),
            f"--cidr={cidr}",
            # Real nodes, where there are any, stay what they are.
            *("--manage-all-nodes=false", f"--manage-nodes-with-annotation-selector={_FAKE}=fake"),
        ]
        self.daemon = Daemon(plane.folder, "kwok", argv, tied=True)
        self._made: list[str] = []

    def __enter__(self) -> FakeNodes:
        self.daemon.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        with self._plane.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            for name in self._made:
                core.delete_node(name)
        self.daemon.stop()

    def add(
        self,
        name: str,
        labels: Mapping[str, str] | None = None,
        capacity: Mapping[str, str] | None = None,
        taints: list[dict[str, str]] | None = None,
    ) -> None:
        """One node; `capacity` in addition to 32 CPUs, 256 GiB and 110 pods: accelerators, say."""
        room = {"cpu": "32", "memory": "256Gi", "pods": "110", **(capacity or {})}
        node = {
            "metadata": {
                "name": name,
                "annotations": {_FAKE: "fake"},
                "labels": {"kubernetes.io/hostname": name, **(labels or {})},
            },
            "spec": {"taints": taints or []},
            "status": {"allocatable": room, "capacity": room},
        }
        with self._plane.client() as api:
            core: Any = kubernetes.CoreV1Api(api)
            core.create_node(node)
        self._made.append(name)
