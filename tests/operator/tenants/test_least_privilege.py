"""Escalations with the credentials of the operator that the chart installs: all are refused."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Iterator
from http.client import HTTPSConnection
from typing import Any

import pytest
from kubernetes import config

from distributed_input_operator.injection.owners import JOB
from testing.charts.rendering import CHART, NAME, RELEASE, helm
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.escalations import (
    APPLY,
    APPS,
    CORE,
    FORBIDDEN,
    MERGE,
    OURS,
    POD,
    REFUSED,
    SERVICE_ACCOUNT_TOKEN,
    deployment,
    secret,
)
from testing.operator.processes import Operator, eventually, manifest, run_operator
from testing.operator.webhooks import CONFIGURATIONS, WebhookServer, free_port, job, pod


class Account:
    """Requests with the credentials of the operator's ServiceAccount."""

    def __init__(self, api: Any, tenant: str, own: str) -> None:
        self._cluster = Cluster(api, tenant)
        self.tenant, self.own = tenant, own

    def call(self, method: str, path: str, body: Any = None, kind: str = "", **query: str) -> Any:
        """Send a request. TENANT and OWN in the path are the namespaces."""
        path = path.replace("TENANT", self.tenant).replace("OWN", self.own)
        return self._cluster.call(method, path, body, kind or "application/json", **query)


@pytest.fixture(scope="module")
def release(cluster, control_plane) -> Iterator[str]:
    """Install the chart, and return its namespace."""
    place = ("--namespace", cluster.namespace, "--kubeconfig", control_plane.kubeconfig)
    result = helm("install", RELEASE, CHART, *place, "--set", "crds.enabled=false")
    assert result.returncode == 0, result.stderr
    yield cluster.namespace
    result = helm("uninstall", RELEASE, *place)
    assert result.returncode == 0, result.stderr


@pytest.fixture(scope="module")
def tenant(cluster) -> Iterator[Cluster]:
    """Create the namespace of a tenant, with a Secret, a Deployment and a pod of its own."""
    name = f"{cluster.namespace}-tenant"
    cluster.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    created = Cluster(cluster._api, name)
    created.create({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "theirs"}})
    created.create(deployment("theirs"))
    created.create({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "theirs"}, **POD})
    yield created
    cluster.call("DELETE", f"/api/v1/namespaces/{name}")


@pytest.fixture(scope="module")
def account(release, tenant, control_plane, has_admission_policies: bool) -> Iterator[Account]:
    """Wait until the API server enforces the policy. Return the operator's account.

    If the API server has no admission policies, only the role limits the account.
    """
    kubeconfig = control_plane.service_account_kubeconfig(release, NAME)
    with config.new_client_from_config(str(kubeconfig)) as api:
        created = Account(api, tenant.namespace, release)

        def is_enforced() -> bool:
            try:
                plain = {"metadata": {"name": "plain"}}
                created.call("POST", "/api/v1/namespaces/TENANT/configmaps", plain, dryRun="All")
            except RequestRejected as error:
                return "only objects with the label" in str(error)
            return False

        if has_admission_policies:
            eventually(is_enforced)
        yield created


@pytest.fixture(scope="module")
def operator(account, control_plane, tmp_path_factory) -> Iterator[Operator]:
    """Run an operator for all namespaces with this account."""
    kubeconfig = control_plane.service_account_kubeconfig(account.own, NAME)
    folder = tmp_path_factory.mktemp("operator")
    flags = ["--token-key-secret", f"{NAME}-tokens", "--webhook-host", "localhost"]
    flags += webhook_flags(account.own)
    with run_operator(kubeconfig, account.own, folder, *flags) as created:
        yield created


def webhook_flags(namespace: str) -> list[str]:
    """Return the flags that the operator and the webhook share, as in the chart."""
    configuration = ["--webhook-configuration", f"{namespace}-{NAME}"]
    return [*configuration, "--webhook-secret", f"{NAME}-webhook"]


@pytest.mark.parametrize("what", FORBIDDEN)
def test_the_role_does_not_allow_to(account, what):
    method, path, body, kind = FORBIDDEN[what]
    path, _, text = path.partition("?")
    query = dict([text.split("=")]) if text else {}
    if kind == APPLY:
        query = {"fieldManager": "tests", "force": "true"}
    with pytest.raises(RequestRejected) as caught:
        account.call(method, path, body, kind, **query)
    assert caught.value.status == 403
    assert "cannot" in str(caught.value)
    assert f"serviceaccount:{account.own}:{NAME}" in str(caught.value)


@pytest.mark.parametrize("what", REFUSED)
def test_the_policy_refuses(admission_policies, account, what):
    path, body, message = REFUSED[what]
    with pytest.raises(RequestRejected, match=message):
        account.call("POST", path, body)


def test_the_policy_refuses_to_take_over_objects_of_others(admission_policies, account):
    """Otherwise an object gets the label first, and any content after that."""
    for path in (f"{APPS}/theirs", f"{CORE}/pods/theirs"):
        with pytest.raises(RequestRejected, match="may change only objects with the label"):
            account.call("PATCH", path, {"metadata": OURS}, MERGE)
    applied = deployment("theirs", **OURS)
    with pytest.raises(RequestRejected, match="may change only objects with the label"):
        account.call("PATCH", f"{APPS}/theirs", applied, APPLY, fieldManager="t", force="true")


def test_the_policy_limits_only_the_operator(admission_policies, tenant):
    tenant.create(secret(SERVICE_ACCOUNT_TOKEN, name="by-a-user"))
    tenant.create({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "by-a-user"}})


def test_the_operator_may_read_the_key_of_the_tokens(account, operator, tenant):
    tenant.create(manifest("keyed"))
    token_of(tenant, "keyed")
    found = account.call("GET", f"/api/v1/namespaces/OWN/secrets/{NAME}-tokens")
    assert len(base64.b64decode(found["data"]["key"])) == 32
    tenant.delete("DistributedInput", "keyed")


@pytest.mark.timeout(600)
def test_the_operator_works_with_these_rights(
    account, operator, tenant, tmp_path, has_admission_policies
):
    """It creates, measures and scales an input, sets a deletion cost, and repairs children."""
    port = free_port()
    spec = {"workers": {"replicas": 2}, "dispatcher": {"port": port}}
    tenant.create(manifest("digits", **spec))
    token = token_of(tenant, "digits")

    def live() -> dict[str, Any]:
        tenant.run_pods("digits")
        found: dict[str, Any] = tenant.get("DistributedInput", "digits") or {}
        return dict(found.get("status", {}).get("trainers", {}))

    tenant.wait_until_ready("digits", 2)
    with run_dispatcher(port, token, tmp_path):
        eventually(lambda: live().get("reading") == 1, 150)
    (worker, *_) = tenant.pods("digits")
    path = f"{CORE}/pods/{worker['metadata']['name']}"
    image = {"spec": {"containers": [{"name": "worker", "image": "theirs:1"}]}}
    if has_admission_policies:
        with pytest.raises(RequestRejected, match="may not change the spec of a pod"):
            account.call("PATCH", path, image, "application/strategic-merge-patch+json")
    tenant.patch("DistributedInput", "digits", {"spec": {"replicas": 1}}, "scale")
    eventually(lambda: len(tenant.pods("digits")) == 1)
    before = tenant.children("digits")
    tenant.delete("ServiceAccount", "digits-distributed-input")
    tenant.delete("ConfigMap", "digits-distributed-input")
    eventually(lambda: tenant.children("digits") == before)
    log = operator.read_log()
    refused = [line for line in log.splitlines() if "orbidden" in line]
    # The namespaces of earlier tests may still be there for a while.
    assert [line for line in refused if "it is being terminated" not in line] == []
    assert "lacks" not in log
    assert token not in log
    tenant.delete("DistributedInput", "digits")


def test_the_operator_encrypts_with_these_rights(operator, tenant):
    name = "sealed-distributed-input-tls"
    tenant.create(manifest("sealed", encryption="All"))
    eventually(lambda: tenant.get("Secret", name) and tenant.get("ConfigMap", name))
    eventually(lambda: tenant.get("Deployment", "sealed-worker"))


def test_the_webhook_works_with_its_rights(account, operator, tenant, control_plane, tmp_path):
    """It reads its certificate, an input and a Job. The operator made the certificate."""
    port, own = free_port(), account.own
    kubeconfig = control_plane.service_account_kubeconfig(own, f"{NAME}-webhook")
    flags = ["--webhook-listen", f"127.0.0.1:{port}", *webhook_flags(own)]
    tenant.create(manifest("read", workers={"replicas": 0}))
    of_job = job("fit", 3, "read")
    of_job["spec"]["suspend"] = True
    created = tenant.call("POST", JOB.path(tenant.namespace), of_job)
    (webhook,) = tenant.call("GET", f"{CONFIGURATIONS}/{own}-{NAME}")["webhooks"]
    trainer = pod("read")
    owner = {"apiVersion": "batch/v1", "kind": "Job", "name": "fit", "controller": True}
    trainer["metadata"]["ownerReferences"] = [{**owner, "uid": created["metadata"]["uid"]}]
    review = {"request": {"uid": "1", "namespace": tenant.namespace, "object": trainer}}
    server = WebhookServer(kubeconfig, own, tmp_path, *flags)
    try:
        eventually(lambda: server.get("/readyz")[0] == 200)
        bundle = base64.b64decode(webhook["clientConfig"]["caBundle"]).decode()
        trust = ssl.create_default_context(cadata=bundle)
        client = HTTPSConnection("localhost", port, context=trust, timeout=20)
        client.request("POST", webhook["clientConfig"]["service"]["path"], json.dumps(review))
        answer = json.load(client.getresponse())["response"]
        client.close()
    finally:
        server.stop()
    assert answer["allowed"], answer
    added = base64.b64decode(answer["patch"]).decode()
    assert "distributed_input.sidecar" in added
    assert '"3"' in added  # trainers, from the Job
    log = server.read_log()
    assert "orbidden" not in log
    assert operator.process.poll() is None
    tenant.delete("DistributedInput", "read")


@pytest.mark.timeout(600)
def test_an_input_with_the_token_of_an_earlier_release(operator, tenant, tmp_path):
    """The operator cannot read it. It says what to do, and running pods get the new token."""
    port, name = free_port(), "earlier"
    shared = f"{name}-distributed-input"
    random = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": shared}}
    tenant.create({**random, "stringData": {"token": "a-random-token"}})
    tenant.create(manifest(name, dispatcher={"port": port}))
    tenant.wait_until_ready(name, 1)

    def unmeasured() -> dict[str, Any]:
        tenant.simulate_kubelet(name, "dispatcher", "127.0.0.1")
        return tenant.condition(name, "Unmeasured")

    def is_measured() -> bool:
        status = (tenant.get("DistributedInput", name) or {}).get("status", {})
        return status.get("trainers", {}).get("reading") == 1

    with run_dispatcher(port, "a-random-token", tmp_path):
        found = eventually(unmeasured, 150)
        assert found["reason"] == "TokenRefused"
        assert "delete the Secret" in found["message"]
        assert tenant.condition(name, "Ready")["status"] == "True"
        tenant.delete("Secret", shared)
        # Its kubelet writes the new token to the file that the dispatcher reads again.
        new = eventually(lambda: token_of(tenant, name), 150)
        assert new != "a-random-token"
        (tmp_path / "token").write_text(new)
        eventually(is_measured, 150)
        eventually(lambda: not unmeasured())
    tenant.delete("DistributedInput", name)
