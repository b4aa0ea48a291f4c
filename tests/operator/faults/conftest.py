"""Fixtures of the fault tests: each has its own namespace, proxy and operator."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from testing.api_faults.kubelet import Kubelet
from testing.api_faults.operators import RestartingOperator
from testing.api_faults.proxy import FaultProxy
from testing.api_faults.scenario import NAME, live
from testing.api_faults.state import State
from testing.operator.cluster import Cluster

ALL = os.environ.get("OPERATOR_FAULTS") == "all"
"""Whether to run the whole matrix: `make operator-faults`."""


class Place:
    """A namespace with kubelets, and an operator behind a proxy."""

    def __init__(self, control_plane, cluster: Cluster, folder, seed: int, *flags: str) -> None:
        self.cluster = cluster
        self.proxy = FaultProxy(control_plane.kubeconfig, folder, seed)
        self.operator = RestartingOperator(self.proxy.kubeconfig, cluster, folder, *flags)
        self.proxy.on_kill = self.operator.kill

    def close(self) -> None:
        """End the operator and the proxy."""
        print(self.operator.log[-8000:])
        self.operator.kill()
        self.proxy.close()


@pytest.fixture
def make_place(control_plane, cluster, tmp_path) -> Iterator[object]:
    """Return a function that makes a place from a seed and flags of the operator."""
    with ExitStack() as stack:

        def make(seed: int = 0, *flags: str) -> Place:
            name = f"faults-{uuid.uuid4().hex[:8]}"
            cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
            stack.callback(cluster.call, "DELETE", f"/api/v1/namespaces/{name}")
            own = Cluster(cluster._api, name)
            folder = tmp_path / name
            folder.mkdir()
            place = Place(control_plane, own, folder, seed, *flags)
            stack.callback(place.close)
            stack.enter_context(Kubelet(Cluster(stack.enter_context(control_plane.client()), name)))
            return place

        yield make


_undisturbed: list[tuple[list[State], int]] = []


@pytest.fixture
def undisturbed(make_place) -> tuple[list[State], int]:
    """Return the states of an undisturbed life, and the number of the operator's writes."""
    if not _undisturbed:
        place = make_place()
        place.operator.start()
        states = live(place.cluster, NAME, delete=False)
        _undisturbed.append((states, len(place.proxy.writes)))
        print(*place.proxy.writes, sep="\n")
    return _undisturbed[0]
