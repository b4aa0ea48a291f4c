"""The chart's policy on the encryption of inputs (`encryption.minimum`), for both versions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from testing.charts.rendering import find_one, manifests
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually
from testing.operator.versions import beta_path, serve_beta

Json = dict[str, Any]
ADMISSION = "/apis/admissionregistration.k8s.io/v1"
KINDS = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
VERSIONS = ("v1alpha1", "v1beta1")
ACCEPTED = {"control": ["control", "all"], "all": ["all"]}
NONE = {"encryption": "None"}


@pytest.fixture(scope="module")
def served(
    cluster: Cluster, control_plane: Any, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Cluster]:
    """Serve both versions. The input `before` is not encrypted."""
    with serve_beta(cluster, control_plane.kubeconfig, tmp_path_factory.mktemp("minimum")):
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
    remedy = f"use {' or '.join(ACCEPTED[value])} (in v1beta1"
    try:
        eventually(lambda: remedy in refusal(served, NONE))
        yield value
    finally:
        for one in policies:
            place = f"{ADMISSION}/{KINDS[one['kind']]}/{one['metadata']['name']}"
            served.call("DELETE", place)
        eventually(lambda: refusal(served, NONE) == "")


def create(cluster: Cluster, spec: Json, version: str = "v1alpha1", **options: str) -> None:
    body = {
        "apiVersion": f"distributed-input.dev/{version}",
        "kind": "DistributedInput",
        "metadata": {"name": options.pop("name", "mine")},
        "spec": spec,
    }
    path = beta_path(cluster) if version == "v1beta1" else cluster.path("DistributedInput")
    cluster.call("POST", path, body, **options)


def refusal(cluster: Cluster, spec: Json, version: str = "v1alpha1") -> str:
    """Return why the API server refuses a new input. Empty: it does not."""
    try:
        create(cluster, spec, version, dryRun="All")
    except RequestRejected as error:
        return f"{error.status} {error}"
    return ""


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("encryption", ["", "none", "control", "all"])
def test_weaker_inputs_are_refused_in_both_versions(
    served: Cluster, minimum: str, version: str, encryption: str
) -> None:
    value = encryption.title() if version == "v1beta1" else encryption
    found = refusal(served, {"encryption": value} if value else {}, version)
    if not encryption or encryption in ACCEPTED[minimum]:  # The default is `all`.
        assert found == ""
        return
    assert found.startswith("403")
    what = f"spec.encryption: {encryption} is weaker than the administrators of this"
    assert what in found
    remedies = [" or ".join(ACCEPTED[minimum]), " or ".join(map(str.title, ACCEPTED[minimum]))]
    assert "use {} (in v1beta1: {})".format(*remedies) in found


def test_inputs_that_exist_can_change_and_be_deleted(served: Cluster, minimum: str) -> None:
    served.patch("DistributedInput", "before", {"spec": {"suspend": True}})
    served.patch("DistributedInput", "before", {"metadata": {"finalizers": ["example.com/wait"]}})
    served.patch("DistributedInput", "before", {"metadata": {"finalizers": None}})


def test_no_change_weakens_an_input(served: Cluster, minimum: str) -> None:
    """The definition refuses it, so the policy checks only new inputs."""
    create(served, {"encryption": "All"}, name="strong")
    for change in ({"encryption": "None"}, {"encryption": None}):
        with pytest.raises(RequestRejected, match="encryption is immutable"):
            served.patch("DistributedInput", "strong", {"spec": change})
    with pytest.raises(RequestRejected, match="encryption is immutable"):
        served.patch("DistributedInput", "strong", {"spec": None})
    served.delete("DistributedInput", "strong")
