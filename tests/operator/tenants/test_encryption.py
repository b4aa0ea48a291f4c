"""Which inputs are encrypted, and their keys and certificates, with a real API server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from distributed_input.api.identity import DISPATCHER, SIDECAR, VIEWER, WORKER
from testing.issued import certificate
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import Operator, eventually, manifest

NAME = "secret"
TLS = f"{NAME}-distributed-input-tls"


@pytest.fixture(scope="module", autouse=True)
def encrypted(cluster: Cluster, operator: Operator) -> Iterator[None]:
    """Create an input with the default encryption."""
    cluster.create(manifest(NAME, encryption=None))
    eventually(lambda: cluster.get("ConfigMap", TLS) and cluster.get("Secret", TLS))
    yield
    cluster.delete("DistributedInput", NAME)


def test_each_role_has_a_certificate_of_its_input(cluster):
    uid = cluster.get("DistributedInput", NAME)["metadata"]["uid"]
    for role in (DISPATCHER, WORKER, SIDECAR, VIEWER):
        own = certificate(cluster, NAME, role).own
        assert (own.namespace, own.name, own.uid, own.role) == (cluster.namespace, NAME, uid, role)
    assert not cluster.get("Secret", f"{NAME}-distributed-input"), "there is no token"


def test_what_a_user_writes_over_a_certificate_is_replaced(cluster):
    before = certificate(cluster, NAME, SIDECAR)
    cluster.patch("ConfigMap", TLS, {"data": {"worker.crt": "broken"}})

    def is_replaced() -> bool:
        return cluster.get("ConfigMap", TLS)["data"]["worker.crt"] != "broken"

    eventually(is_replaced)
    assert certificate(cluster, NAME, WORKER).own.role == WORKER
    assert certificate(cluster, NAME, SIDECAR).chain == before.chain, "it was usable"


def test_a_restarted_operator_keeps_keys_and_certificates(cluster, operator):
    versions = [
        cluster.get(kind, TLS)["metadata"]["resourceVersion"] for kind in ("Secret", "ConfigMap")
    ]
    operator.restart()
    operator.wait_until_leading()
    cluster.create(manifest("other"))  # handled after the inputs that exist
    eventually(lambda: cluster.get("Deployment", "other-worker"))
    found = [
        cluster.get(kind, TLS)["metadata"]["resourceVersion"] for kind in ("Secret", "ConfigMap")
    ]
    cluster.delete("DistributedInput", "other")
    assert found == versions


def volumes(cluster: Cluster, name: str) -> set[str]:
    """Return the volumes of the dispatcher's pods."""
    deployment = cluster.get("Deployment", f"{name}-dispatcher") or {"spec": {"template": {}}}
    pod = deployment["spec"]["template"].get("spec", {})
    return {one["name"] for one in pod.get("volumes", ())} & {"tls", "token"}


NOT_ACCEPTED = "tfDataService has no authentication and cannot be encrypted: set encryption: None"


def test_a_tf_data_service_is_refused_in_an_input_that_exists(cluster):
    with pytest.raises(RequestRejected, match=NOT_ACCEPTED):
        cluster.patch("DistributedInput", NAME, {"spec": {"tfDataService": {}}})
    cluster.create(manifest("accepts", encryption="None", networkPolicy="Open"))
    with pytest.raises(RequestRejected, match="without a NetworkPolicy every pod"):
        cluster.patch("DistributedInput", "accepts", {"spec": {"tfDataService": {}}})
    change = {"tfDataService": {}, "networkPolicy": "Restricted"}
    cluster.patch("DistributedInput", "accepts", {"spec": change})
    cluster.delete("DistributedInput", "accepts")


def test_an_input_without_encryption_has_no_certificates(cluster):
    cluster.create(manifest("plain"))
    eventually(lambda: cluster.get("Secret", "plain-distributed-input"))
    eventually(lambda: cluster.get("Deployment", "plain-worker"))
    assert not cluster.get("ConfigMap", "plain-distributed-input-tls")
    assert not cluster.get("Secret", "plain-distributed-input-tls")
    cluster.delete("DistributedInput", "plain")


def test_an_input_that_was_created_again_gets_the_default(cluster):
    cluster.create(manifest("again"))
    eventually(lambda: volumes(cluster, "again") == {"token"})
    cluster.delete("DistributedInput", "again")
    eventually(lambda: not cluster.get("DistributedInput", "again"))
    cluster.create(manifest("again", encryption=None))
    eventually(lambda: volumes(cluster, "again") == {"tls"}, 60)
    cluster.delete("DistributedInput", "again")
