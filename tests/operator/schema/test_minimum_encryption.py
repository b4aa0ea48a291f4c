"""The chart's policy on the encryption of inputs (`encryption.minimum`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.charts.rendering import find_one, manifests
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually

Json = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
ACCEPTED = {"Control": ["Control", "All"], "All": ["All"]}
NONE = {"encryption": "None"}


@pytest.fixture(scope="module")
def served(cluster: Cluster) -> Iterator[Cluster]:
    """Return a cluster with the input `before`, which is not encrypted."""
    create(cluster, NONE, name="before")
    yield cluster
    cluster.delete("DistributedInput", "before")


@pytest.fixture(scope="module", params=ACCEPTED)
def minimum(
    admission_policies: None, request: pytest.FixtureRequest, served: Cluster
) -> Iterator[str]:
    """Let the API server refuse weaker inputs in this file's namespace."""
    value = str(request.param)
    own = f'json:namespaces=["{served.namespace}"]'
    objects = manifests(served.namespace, f"encryption.minimum={value}", own)
    policies = [find_one(objects, kind, "-encryption") for kind in KINDS]
    for one in policies:
        served.call("POST", f"{ADMISSION}/{KINDS[one['kind']]}", one)
    remedy = f"use {' or '.join(ACCEPTED[value])}"
    try:
        eventually(lambda: remedy in refusal(served, NONE))
        yield value
    finally:
        for one in policies:
            place = f"{ADMISSION}/{KINDS[one['kind']]}/{one['metadata']['name']}"
            served.call("DELETE", place)
        eventually(lambda: refusal(served, NONE) == "")


def create(cluster: Cluster, spec: Json, name: str = "mine", **options: str) -> None:
    body = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": name},
        "spec": spec,
    }
    cluster.create(body, **options)


def refusal(cluster: Cluster, spec: Json) -> str:
    """Return why the API server refuses a new input. Empty: it does not."""
    try:
        create(cluster, spec, dryRun="All")
    except RequestRejected as error:
        return f"{error.status} {error}"
    return ""


@pytest.mark.parametrize("encryption", ["", "None", "Control", "All"])
def test_weaker_inputs_are_refused(served: Cluster, minimum: str, encryption: str) -> None:
    found = refusal(served, {"encryption": encryption} if encryption else {})
    if not encryption or encryption in ACCEPTED[minimum]:  # The default is All.
        assert found == ""
        return
    assert found.startswith("403")
    assert f"spec.encryption: {encryption} is weaker than the administrators of this" in found
    assert f"use {' or '.join(ACCEPTED[minimum])}" in found


def test_inputs_that_exist_can_change_and_be_deleted(served: Cluster, minimum: str) -> None:
    served.patch("DistributedInput", "before", {"spec": {"suspend": True}})
    served.patch("DistributedInput", "before", {"metadata": {"finalizers": ["example.com/wait"]}})
    served.patch("DistributedInput", "before", {"metadata": {"finalizers": None}})


def test_no_change_weakens_an_input(served: Cluster, minimum: str) -> None:
    """The definition refuses it, so the policy checks only new inputs."""
    create(served, {"encryption": "All"}, name="strong")
    for weaker in ("None", "Control"):
        with pytest.raises(RequestRejected, match="encryption is immutable"):
            served.patch("DistributedInput", "strong", {"spec": {"encryption": weaker}})
    served.delete("DistributedInput", "strong")
