"""The encryption of an input, from its spec and its status."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from distributed_input.api.resource.lifetime.encryption import (
    decided_encryption,
    encryption_of,
    with_encryption,
)
from distributed_input.api.resource.parse import parse
from tests.unit.distributed_input.api.resource.manifests import manifest

EARLIER: dict[str, Any] = {"conditions": [{"type": "Ready", "status": "True"}]}
"""A status of an operator that did not write the encryption."""


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        ({}, "all"),
        ({"spec": {}}, "all"),
        ({"spec": {}, "status": None}, "all"),
        ({"spec": {}, "status": {"observedGeneration": -1}}, "all"),
        ({"spec": {}, "status": {"conditions": []}}, "all"),
        ({"spec": {}, "status": EARLIER}, "none"),
        ({"spec": {}, "status": {**EARLIER, "encryption": "all"}}, "all"),
        ({"spec": {}, "status": {**EARLIER, "encryption": "none"}}, "none"),
        ({"spec": {}, "status": {"encryption": "none"}}, "none"),
        ({"spec": {}, "status": {**EARLIER, "encryption": "of-tomorrow"}}, "none"),
        ({"spec": {"encryption": "none"}}, "none"),
        ({"spec": {"encryption": "control"}, "status": EARLIER}, "control"),
        ({"spec": {"encryption": "all"}, "status": EARLIER}, "all"),
        ({"spec": {"encryption": "none"}, "status": {"encryption": "all"}}, "none"),
    ],
)
def test_the_spec_decides_and_then_the_status(stored: dict[str, Any], expected: str) -> None:
    assert encryption_of(stored) == expected


def test_nothing_is_decided_before_an_operator_has_seen_an_input_without_the_field() -> None:
    assert decided_encryption({"spec": {}, "status": EARLIER}) is None
    assert decided_encryption({"spec": {"encryption": None}}) is None
    assert decided_encryption({"spec": {}, "status": {"encryption": "all"}}) == "all"


def test_only_the_encryption_of_a_resource_changes() -> None:
    plain = parse(manifest("seed: 7"))
    assert plain.spec.encryption is None
    found = with_encryption(plain, "control")
    assert found == parse(manifest("seed: 7\nencryption: control"))


def test_the_module_does_not_need_pydantic() -> None:
    """`distributed-input status` starts fast."""
    program = (
        "import sys, distributed_input.api.resource.lifetime.encryption\n"
        "assert 'pydantic' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
