"""cert-manager issues the chart's authority, and the operator signs those of inputs with it."""

from __future__ import annotations

import base64
from collections.abc import Iterator

import pytest
from cryptography import x509

from distributed_input.api.identity import DISPATCHER, DOMAIN, SIDECAR, VIEWER, WORKER
from testing.charts.rendering import NAME as CHART_NAME
from testing.charts.rendering import find_one, manifests
from testing.ecosystem.cert_manager import apply
from testing.issued import certificate, input_authority, is_signed_by
from testing.operator.cluster import Cluster, Json
from testing.operator.processes import Operator, eventually, manifest, run_operator

NAME, TLS = "signed", "signed-distributed-input-tls"
AUTHORITY = f"{CHART_NAME}-authority"


@pytest.fixture(scope="module")
def chart(cluster: Cluster, platform: str) -> Json:
    """Apply the chart's Certificate."""
    values = (
        "encryption.certManager.enabled=true",
        f"encryption.certManager.issuerRef.name={platform}",
    )
    one = find_one(manifests(cluster.namespace, *values), "Certificate")
    apply(cluster, one)
    return one


@pytest.fixture(scope="module")
def operator(cluster: Cluster, chart, control_plane, tmp_path_factory) -> Iterator[Operator]:
    """Run an operator that signs with the authority of cert-manager."""
    flags = ("--namespace", cluster.namespace, "--authority-secret", AUTHORITY)
    folder = tmp_path_factory.mktemp("operator")
    eventually(lambda: authority(cluster))
    with run_operator(control_plane.kubeconfig, cluster.namespace, folder, *flags) as created:
        yield created


def authority(cluster: Cluster) -> bytes:
    """Return the authority in the Secret. Empty: there is none yet."""
    found = cluster.get("Secret", AUTHORITY) or {}
    return base64.b64decode(found.get("data", {}).get("tls.crt") or "")


def test_inputs_get_certificates_that_end_at_the_root(cluster, operator):
    cluster.create(manifest(NAME, encryption="All"))
    eventually(lambda: is_signed_by(input_authority(cluster, NAME), authority(cluster)))
    for role in (DISPATCHER, WORKER, SIDECAR, VIEWER):
        assert certificate(cluster, NAME, role).own.role == role
    root = base64.b64decode(cluster.get("Secret", "root")["data"]["tls.crt"])
    chain = cluster.get("ConfigMap", TLS)["data"]["worker.crt"].encode()
    assert chain.endswith(authority(cluster))
    assert not is_signed_by(input_authority(cluster, NAME), root), "it has an own authority"


def test_cert_manager_limits_the_names_that_the_authority_signs(cluster, operator):
    """The chart requests it, and the issuer copies it from the request."""
    own = x509.load_pem_x509_certificate(authority(cluster))
    found = own.extensions.get_extension_for_class(x509.NameConstraints)
    names = [x509.DNSName(DOMAIN), x509.UniformResourceIdentifier(DOMAIN)]
    assert (found.critical, found.value) == (True, x509.NameConstraints(names, None))


def test_a_renewal_by_cert_manager_reaches_inputs_without_new_keys(cluster, chart, operator):
    before = authority(cluster)
    keys = cluster.get("Secret", TLS)["metadata"]["resourceVersion"]
    spec = {**chart["spec"], "duration": "1440h"}
    apply(cluster, {**chart, "spec": spec})  # cert-manager issues it again, with another key

    def is_renewed() -> bool:
        return authority(cluster) not in (before, b"")

    eventually(is_renewed)
    # The operator reads it again within 30 s, and each input within five minutes.
    operator.restart()
    operator.wait_until_leading()
    eventually(lambda: is_signed_by(input_authority(cluster, NAME), authority(cluster)))
    assert certificate(cluster, NAME, WORKER).own.role == WORKER
    assert cluster.get("Secret", TLS)["metadata"]["resourceVersion"] == keys
