"""Each field of the spec changes and changes back. A fresh apply gives the same objects."""

from __future__ import annotations

import pytest

from testing.api_faults import fields
from testing.api_faults.scenario import DivergedError, converged, settled
from testing.api_faults.state import State
from testing.operator.cluster import Cluster, RequestRejected
from testing.operator.processes import eventually, manifest
from tests.operator.faults.conftest import ALL

STEP = 1 if ALL else 8
CODE = {"kind": "ConfigMap", "apiVersion": "v1", "metadata": {"name": fields.CODE}}


def put(cluster: Cluster, name: str, spec: fields.Json) -> None:
    """Replace the whole spec."""

    def is_put() -> bool:
        found = cluster.get("DistributedInput", name) or {}
        path = cluster.path("DistributedInput", name)
        try:
            cluster.call("PUT", path, {**found, "spec": spec})
        except RequestRejected as error:
            if error.status != 409:
                raise
            return False
        return True

    eventually(is_put)


def diverged(cluster: Cluster, number: int, expected: State, what: str) -> list[str]:
    """Return why an input does not converge to a state. Empty: it does."""
    try:
        converged(cluster, f"b{number}x", expected, seconds=40)
    except DivergedError as error:
        return [f"{what}: {error}"]
    return []


@pytest.mark.timeout(3000)
def test_every_field_changes_and_back(make_place):
    place = make_place()
    cluster = place.cluster
    cluster.create({**CODE, "data": {"code.py": "def make(context): ..."}})
    place.operator.start()
    tested = fields.changes()[::STEP]
    batch, failed = 16, []
    for start in range(0, len(tested), batch):
        numbered = dict(enumerate(tested[start : start + batch], start))
        for number in numbered:
            cluster.create(manifest(f"b{number}x", **fields.BASE))
        base = settled(cluster, [f"b{number}x" for number in numbered])
        for number, one in numbered.items():
            put(cluster, f"b{number}x", one.spec)
            cluster.create(manifest(f"f{number}x", **one.spec))
        fresh = settled(cluster, [f"f{number}x" for number in numbered])
        for number, one in numbered.items():
            failed += diverged(cluster, number, fresh[f"f{number}x"], f"{one.field} changed")
            put(cluster, f"b{number}x", fields.BASE)
        for number, one in numbered.items():
            failed += diverged(cluster, number, base[f"b{number}x"], f"{one.field} changed back")
            for kind in "bf":
                cluster.delete("DistributedInput", f"{kind}{number}x")
    print(f"{len(tested)} fields: {', '.join(one.field for one in tested)}")
    assert not failed, "\n".join(failed)


def test_every_immutable_field_is_refused(cluster):
    cluster.create(manifest("fixed", **fields.BASE))
    for one in fields.refused_changes():
        with pytest.raises(RequestRejected, match="immutable"):
            put(cluster, "fixed", one.spec)
    cluster.delete("DistributedInput", "fixed")
