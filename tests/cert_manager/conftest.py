"""cert-manager's own controllers, and an issuer of a platform, in a namespace."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.ecosystem.cert_manager import apply, resource, run_cert_manager
from testing.operator.cluster import Cluster
from testing.operator.processes import eventually
from tests.operator.conftest import cluster

__all__ = ["cluster"]


@pytest.fixture(scope="module")
def platform(cluster: Cluster, control_plane, tmp_path_factory) -> Iterator[str]:
    """Run cert-manager. Create a root and its issuer, and return the issuer's name."""
    folder = tmp_path_factory.mktemp("cert-manager")
    with run_cert_manager(cluster, control_plane.kubeconfig, folder) as controllers:
        apply(cluster, resource("Issuer", "self", selfSigned={}))
        root = {
            "isCA": True,
            "commonName": "platform",
            "secretName": "root",
            "issuerRef": {"name": "self"},
            "privateKey": {"algorithm": "ECDSA", "size": 256},
        }
        apply(cluster, resource("Certificate", "root", **root))
        apply(cluster, resource("Issuer", "platform", ca={"secretName": "root"}))

        def is_issued() -> bool:
            assert controllers.alive(), controllers.tail()
            return cluster.get("Secret", "root") is not None

        eventually(is_issued)
        yield "platform"
