"""The encryption of an input without the field, from its dispatcher's Deployment."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from distributed_input.api import names
from distributed_input_operator.objects.dispatcher import dispatcher_objects
from distributed_input_operator.objects.encryption import initial_encryption
from distributed_input_operator.reconcile.template_changes import input_hash
from tests.unit.distributed_input_operator.snapshots import SETTINGS, resource, snapshot

STORED: dict[str, Any] = {"metadata": {"name": "digits", "uid": "u-1"}, "spec": {}}
PROCESSED = {**STORED, "status": {"conditions": [{"type": "Ready"}]}}
RECREATED = {**STORED, "metadata": {"name": "digits", "uid": "u-2"}}


def dispatcher(encryption: str) -> dict[str, Any]:
    """Return the Deployment of an input with this encryption."""
    return dispatcher_objects(resource(encryption=encryption), SETTINGS)[0]


@pytest.mark.parametrize(
    ("stored", "live", "expected"),
    [
        (STORED, {}, "all"),
        (PROCESSED, {}, "none"),
        (STORED, dispatcher("none"), "none"),
        (STORED, dispatcher("all"), "all"),
        (PROCESSED, dispatcher("none"), "none"),
        (PROCESSED, dispatcher("all"), "all"),
        (RECREATED, dispatcher("none"), "all"),
    ],
    ids=[
        "a new input",
        "processed by an earlier operator that created nothing",
        "created by an earlier operator that wrote no status",
        "created by this operator, which wrote no status",
        "runs without encryption",
        "its status was edited",
        "the Deployment is of a deleted input of the same name",
    ],
)
def test_an_input_continues_as_it_began(
    stored: dict[str, Any], live: dict[str, Any], expected: str
) -> None:
    assert initial_encryption(stored, live) == expected


def test_a_container_without_arguments_is_no_error() -> None:
    live = dispatcher("all")
    live["spec"]["template"]["spec"]["containers"].insert(0, {"name": "other"})
    assert initial_encryption(STORED, live) == "all"


def test_an_input_that_began_without_encryption_has_the_hash_of_earlier_operators() -> None:
    """Their default was no encryption, and the hash has no defaults."""
    earlier = replace(snapshot(), resource=resource(encryption=None))
    for component in (names.DISPATCHER, names.WORKER):
        assert input_hash(snapshot(encryption="none"), component) == input_hash(earlier, component)
