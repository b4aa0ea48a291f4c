"""Checks that the certificates of an encrypted input fit its keys and its authority."""

from __future__ import annotations

from distributed_input.api.identity import DISPATCHER, SIDECAR, WORKER
from testing.issued import certificate
from testing.operator.cluster import Cluster

_ROLES = (DISPATCHER, WORKER, SIDECAR)


def check_certificates(cluster: Cluster, name: str) -> None:
    """Check that peers of an input would accept the certificate of each role now.

    Raises:
        ConfigError: they would refuse one.
    """
    for role in _ROLES:
        found = certificate(cluster, name, role)
        assert (found.own.namespace, found.own.name) == (cluster.namespace, name)
        assert found.own.role == role
