"""The keys of lists, compared with those that the API server publishes."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from distributed_input.api.resource.merge import LIST_KEYS
from distributed_input_operator.kube.kinds import INPUT, WATCHED
from distributed_input_operator.objects.shared import CREATED_ONCE
from testing.operator.cluster import Cluster

Schemas = Mapping[str, Any]


def lists(
    schemas: Schemas, schema: Any, parent: str = "", seen: tuple[str, ...] = ()
) -> Iterator[tuple[str, str, tuple[str, ...]]]:
    """Yield all lists of objects below a schema: parent, field, and keys. No keys: atomic."""
    for name, one in schema.get("properties", {}).items():
        whole = one["items"] if one.get("type") == "array" else one
        (reference,) = whole.get("allOf", [whole])
        path = reference.get("$ref", "").rpartition("/")[2]
        if not path or path in seen or name in ("status", "managedFields"):
            continue
        if one.get("type") == "array":
            yield parent, name, tuple(one.get("x-kubernetes-list-map-keys", ()))
        yield from lists(schemas, schemas[path], name, (*seen, path))


def test_lists_have_the_keys_of_the_api_server(cluster: Cluster) -> None:
    checked = set()
    for kind in WATCHED:
        if kind == INPUT or kind.kind in CREATED_ONCE:
            continue
        root = f"apis/{kind.group}" if kind.group else "api"
        document = cluster.call("GET", f"/openapi/v3/{root}/{kind.version}")
        schemas = document["components"]["schemas"]
        (schema,) = (
            one
            for one in schemas.values()
            for place in one.get("x-kubernetes-group-version-kind", ())
            if place == {"group": kind.group, "version": kind.version, "kind": kind.kind}
        )
        for parent, name, keys in lists(schemas, schema):
            found = LIST_KEYS.get(name) or LIST_KEYS.get(f"{parent}.{name}") or ()
            assert found == keys, (kind.kind, parent, name)
            checked |= {name, f"{parent}.{name}"} & LIST_KEYS.keys()
    # Conditions are only in a status.
    assert checked == LIST_KEYS.keys() - {"conditions"}
