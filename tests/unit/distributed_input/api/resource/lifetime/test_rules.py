"""The rules of both versions; tests/operator/tenants/test_encryption.py runs them."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.resource.crd import crd
from distributed_input.api.resource.lifetime.rules import ALPHA_WORDS, BETA_WORDS, Words, life_rules

VERSIONS = {"v1alpha1": (ALPHA_WORDS, BETA_WORDS), "v1beta1": (BETA_WORDS, ALPHA_WORDS)}


def root(version: str) -> list[Any]:
    (found,) = (one for one in crd()["spec"]["versions"] if one["name"] == version)
    return list(found["schema"]["openAPIV3Schema"]["x-kubernetes-validations"])


@pytest.mark.parametrize("version", VERSIONS)
def test_the_definition_has_the_rules_of_its_version(version: str) -> None:
    words, others = VERSIONS[version]
    found = [(one["rule"], one["message"]) for one in root(version)]
    assert set(life_rules(words)) <= set(found)
    assert not set(life_rules(others)) & set(found) - set(life_rules(words))


@pytest.mark.parametrize("words", [ALPHA_WORDS, BETA_WORDS])
def test_each_message_has_the_field_and_a_remedy(words: Words) -> None:
    immutable, *services = [message for _, message in life_rules(words)]
    assert immutable.startswith("spec.encryption is immutable")
    assert "set the value of status.encryption" in immutable
    assert all(message.startswith("spec.tfDataService: ") for message in services)
    assert f"set encryption: {words.none} to accept that" in services[0]
    assert f"set networkPolicy: {words.restricted_text}" in services[-1]
