"""The keys and certificates of encrypted inputs, with a real API server."""

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
    """Create an encrypted input."""
    cluster.create(manifest(NAME, encryption="all"))
    eventually(lambda: cluster.get("ConfigMap", TLS) and cluster.get("Secret", TLS))
    yield
    cluster.delete("DistributedInput", NAME)


def test_each_role_has_a_certificate_of_its_input(cluster):
    uid = cluster.get("DistributedInput", NAME)["metadata"]["uid"]
    for role in (DISPATCHER, WORKER, SIDECAR, VIEWER):
        own = certificate(cluster, NAME, role).own
        assert (own.namespace, own.name, own.uid, own.role) == (cluster.namespace, NAME, uid, role)
    assert not cluster.get("Secret", f"{NAME}-distributed-input"), "there is no token"


def test_the_owner_of_keys_and_certificates_is_the_input(cluster):
    for kind in ("Secret", "ConfigMap"):
        (owner,) = cluster.get(kind, TLS)["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["name"]) == ("DistributedInput", NAME)


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


def test_encryption_cannot_be_changed(cluster):
    for value in ("none", "control"):
        with pytest.raises(RequestRejected, match="encryption is immutable"):
            cluster.patch("DistributedInput", NAME, {"spec": {"encryption": value}})


def test_an_encrypted_input_has_no_tf_data_service(cluster):
    with pytest.raises(RequestRejected, match="tfDataService cannot be encrypted"):
        cluster.create(manifest("stock", encryption="control", tfDataService={}))


def test_an_input_without_encryption_has_no_certificates(cluster):
    cluster.create(manifest("plain"))
    eventually(lambda: cluster.get("Secret", "plain-distributed-input"))
    eventually(lambda: cluster.get("Deployment", "plain-worker"))
    assert not cluster.get("ConfigMap", "plain-distributed-input-tls")
    assert not cluster.get("Secret", "plain-distributed-input-tls")
    cluster.delete("DistributedInput", "plain")
