"""Parts that the manifests of child objects share."""

from __future__ import annotations

from typing import Any

from hypothesis import given

from distributed_input.api import names
from distributed_input_operator.objects.children import (
    APPLIED_ANNOTATION,
    default_image_annotation,
    digest,
    image_pull_policy,
    image_pull_secrets,
    manifest,
)
from distributed_input_operator.objects.snapshot import Settings
from tests.unit.distributed_input_operator.objects.json_values import json_objects
from tests.unit.distributed_input_operator.snapshots import resource


def config_map(data: dict[str, str]) -> dict[str, Any]:
    return manifest(resource(), "v1", "ConfigMap", "digits-config", {"data": data})


def test_the_input_owns_its_children():
    (owner,) = config_map({})["metadata"]["ownerReferences"]
    assert (owner["kind"], owner["name"], owner["uid"]) == ("DistributedInput", "digits", "u-1")
    assert config_map({})["metadata"]["labels"][names.INPUT_LABEL] == "digits"


def test_the_hash_changes_with_the_content():
    one, other = config_map({"a": "1"}), config_map({})
    hashes = {each["metadata"]["annotations"][APPLIED_ANNOTATION] for each in (one, other, one)}
    assert len(hashes) == 2


@given(json_objects)
def test_the_digest_does_not_depend_on_the_order_of_keys(value):
    assert digest(dict(reversed(list(value.items())))) == digest(value)


def test_the_operators_pull_policy_applies_only_to_its_default_images():
    settings = Settings("worker:1", "sidecar:1", pull_policy="Always", pull_secrets=("a",))
    assert image_pull_policy(None, settings) == {"imagePullPolicy": "Always"}
    assert image_pull_policy("own:1", settings) == {}
    assert image_pull_secrets(settings) == {"imagePullSecrets": [{"name": "a"}]}


def test_only_a_default_image_is_annotated():
    assert default_image_annotation(None, "w:1") == {names.DEFAULT_IMAGE_ANNOTATION: "w:1"}
    assert default_image_annotation("own:1", "w:1") == {}
