"""An authority signs those of inputs. The test writes the Secret as cert-manager does."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from functools import partial
from typing import Any

import pytest

from distributed_input.api.identity import DISPATCHER, SIDECAR, VIEWER, WORKER
from testing.issued import certificate, input_authority, is_signed_by
from testing.issuer import PlatformRoot
from testing.operator.cluster import Cluster
from testing.operator.processes import SECONDS, Operator, eventually, manifest, run_operator

NAME, TLS, AUTHORITY = "signed", "signed-distributed-input-tls", "platform"
CONDITION = "AuthorityUnusable"
ROOT = PlatformRoot()


@pytest.fixture(scope="module")
def operator(cluster: Cluster, control_plane, tmp_path_factory) -> Iterator[Operator]:
    """Run an operator that needs an authority. There is none yet."""
    flags = ("--namespace", cluster.namespace, "--authority-secret", AUTHORITY)
    folder = tmp_path_factory.mktemp("operator")
    with run_operator(control_plane.kubeconfig, cluster.namespace, folder, *flags) as created:
        yield created


@pytest.fixture(scope="module")
def signed(cluster: Cluster, operator: Operator) -> bytes:
    """Create an encrypted input, then the authority. Return the authority's certificate."""
    cluster.create(manifest(NAME, encryption="All"))

    def is_refused() -> bool:
        return cluster.condition(NAME, "Applied").get("reason") == CONDITION

    eventually(is_refused)
    message = cluster.condition(NAME, "Applied")["message"]
    assert f"Secret {AUTHORITY} in namespace {cluster.namespace}: it does not exist" in message
    assert cluster.children(NAME) == set(), "no pod starts without certificates"
    fields = write(cluster, ROOT.secret())

    def is_signed() -> bool:
        return is_signed_by(input_authority(cluster, NAME), fields["tls.crt"])

    eventually(is_signed, 3 * SECONDS)  # the operator tries again after at most a minute
    eventually(lambda: cluster.get("Deployment", f"{NAME}-worker"))
    return fields["tls.crt"]


def write(cluster: Cluster, fields: dict[str, bytes]) -> dict[str, bytes]:
    """Create or change the Secret, as cert-manager does. Return its fields."""
    data = {key: base64.b64encode(value).decode() for key, value in fields.items()}
    if cluster.get("Secret", AUTHORITY):
        cluster.patch("Secret", AUTHORITY, {"data": data})
    else:
        head = {"apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls"}
        cluster.create({**head, "metadata": {"name": AUTHORITY}, "data": data})
    return fields


def change(cluster: Cluster, operator: Operator, fields: dict[str, bytes]) -> None:
    """Change the Secret. Restart the operator, which would read it again within 30 s."""
    write(cluster, fields)
    operator.restart()
    operator.wait_until_leading()


def found(cluster: Cluster) -> dict[str, Any]:
    live: Any = cluster.get("ConfigMap", TLS)
    return dict(live["data"])


def test_each_role_has_a_certificate_with_the_chain_of_the_platform(cluster, signed):
    for role in (DISPATCHER, WORKER, SIDECAR, VIEWER):
        assert certificate(cluster, NAME, role).own.role == role
        assert found(cluster)[f"{role}.crt"].encode().endswith(signed)


def test_a_renewed_authority_signs_again_and_certificates_stay(cluster, operator, signed):
    before = found(cluster)
    keys = cluster.get("Secret", TLS)["metadata"]["resourceVersion"]
    pods = cluster.get("Deployment", f"{NAME}-worker")["metadata"]["generation"]
    fields = ROOT.secret()
    change(cluster, operator, fields)
    eventually(lambda: is_signed_by(input_authority(cluster, NAME), fields["tls.crt"]))
    after = found(cluster)
    end = "-----END CERTIFICATE-----\n"
    for role in (DISPATCHER, WORKER, SIDECAR, VIEWER):
        key = f"{role}.crt"
        assert after[key].partition(end)[0] == before[key].partition(end)[0]
        assert certificate(cluster, NAME, role).own.role == role
    assert cluster.get("Secret", TLS)["metadata"]["resourceVersion"] == keys
    assert cluster.get("Deployment", f"{NAME}-worker")["metadata"]["generation"] == pods


@pytest.mark.parametrize(
    ("fields", "reason"),
    [
        (ROOT.secret(ca=False), "NotAuthority"),
        ({"tls.key": b"broken"}, "SecretMalformed"),
    ],
)
def test_an_input_continues_with_an_authority_that_cannot_sign(
    cluster, operator, signed, fields, reason
):
    before = found(cluster)
    change(cluster, operator, fields)

    def is_reported() -> bool:
        return cluster.condition(NAME, CONDITION).get("reason") == reason

    eventually(is_reported)
    eventually(partial(_has_event, cluster, reason))
    replicas = 1 + cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"]
    cluster.patch("DistributedInput", NAME, {"spec": {"workers": {"replicas": replicas}}})

    def is_scaled() -> bool:
        return cluster.get("Deployment", f"{NAME}-worker")["spec"]["replicas"] == replicas

    eventually(is_scaled)
    assert found(cluster) == before
    change(cluster, operator, ROOT.secret())
    eventually(lambda: not cluster.condition(NAME, CONDITION))


def _has_event(cluster: Cluster, reason: str) -> bool:
    events = cluster.call("GET", f"/api/v1/namespaces/{cluster.namespace}/events")["items"]
    return any(one["reason"] == reason and one["involvedObject"]["name"] == NAME for one in events)
