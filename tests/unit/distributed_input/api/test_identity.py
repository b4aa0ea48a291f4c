"""Identities in certificates, and the table of what each role may call."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api import identity
from distributed_input.api.identity import ALLOWED, DIRECT_TRANSFER, ROLES, Identity
from distributed_input.api.proto import dispatcher_pb2, worker_pb2

names = st.from_regex(r"[a-z0-9]([-a-z0-9]{0,20}[a-z0-9])?", fullmatch=True)
identities = st.builds(Identity, names, names, names, st.sampled_from(ROLES))
HEALTH = "/grpc.health.v1.Health/Check"
METHODS = [
    f"/{service.full_name}/{method.name}"
    for file in (dispatcher_pb2, worker_pb2)
    for service in file.DESCRIPTOR.services_by_name.values()
    for method in service.methods
]


@given(identities)
def test_a_uri_names_one_identity(one: Identity) -> None:
    assert identity.parse(["https://other", one.uri]) == one


@given(identities, identities)
def test_a_certificate_with_two_identities_has_none(one: Identity, other: Identity) -> None:
    assert identity.parse([one.uri, other.uri]) is None


@pytest.mark.parametrize(
    "uri",
    [
        "spiffe://distributed-input/ns/a/input/b/uid/c/role/admin",
        "spiffe://distributed-input/ns/a/input/b/uid/c/role/worker/more",
        "spiffe://distributed-input/ns/a/input/b/uid//role/worker",
        "spiffe://other/ns/a/input/b/uid/c/role/worker",
        "x-spiffe://distributed-input/ns/a/input/b/uid/c/role/worker",
        "",
    ],
)
def test_other_uris_are_no_identities(uri: str) -> None:
    assert identity.parse([uri]) is None


@given(
    identities,
    identities,
    st.sampled_from([*METHODS, DIRECT_TRANSFER, "/grpc.health.v1.Health/Check"]),
)
def test_a_peer_of_another_input_is_always_refused(
    one: Identity, other: Identity, method: str
) -> None:
    if other.with_role(one.role) != one:
        assert "is for input" in identity.refusal(one, other, method)


@given(identities, st.sampled_from(ROLES), st.sampled_from([*METHODS, DIRECT_TRANSFER]))
def test_a_role_may_call_what_the_table_says(own: Identity, role: str, method: str) -> None:
    allowed = not identity.refusal(own, own.with_role(role), method)
    assert allowed == (role in ALLOWED[method])


@given(identities, st.sampled_from(ROLES), st.text())
def test_no_role_may_call_an_unknown_method(own: Identity, role: str, text: str) -> None:
    assert identity.refusal(own, own.with_role(role), f"/distributed_input.v1.Worker/New{text}")


def test_a_peer_without_identity_is_refused() -> None:
    assert identity.refusal(Identity("a", "b", "c", "worker"), None, METHODS[0])


def test_the_table_has_each_method_of_each_service() -> None:
    assert ALLOWED.keys() == {*METHODS, DIRECT_TRANSFER}


def test_no_server_is_a_client_of_its_own_service() -> None:
    """A dispatcher calls nothing. A worker calls the dispatcher only."""
    callers = {role for roles in ALLOWED.values() for role in roles}
    assert identity.DISPATCHER not in callers
    assert all(
        identity.WORKER not in roles for method, roles in ALLOWED.items() if "Worker/" in method
    )


def test_the_page_has_the_roles_of_each_call() -> None:
    page = (Path(__file__).parents[4] / "docs" / "security.md").read_text()
    begin, end = "<!-- roles: from distributed_input/api/identity.py -->\n", "<!-- end of roles -->"
    rows = [
        f"| {path.rpartition('.')[2]} | {', '.join(sorted(roles))} |"
        for path, roles in ALLOWED.items()
    ]
    found = page.partition(begin)[2].partition(end)[0].splitlines()
    assert found == ["| Call | Roles |", "|---|---|", *rows]
