"""It is found out from kopf's requests when a watch begins after a list."""

from __future__ import annotations

from distributed_input_operator.kube.kinds import INPUT, POD, POLICY, Kind
from distributed_input_operator.kube.watch import _Requests

Listed = list[tuple[Kind, str | None]]


def requests(*namespaces: str) -> tuple[_Requests, Listed]:
    listed: Listed = []
    made = _Requests([INPUT, POD, POLICY], namespaces, lambda *place: listed.append(place))
    return made, listed


def send(made: _Requests, what: str, path: str) -> None:
    made.sent(path, watches=what == "watch")


def test_the_first_watch_after_a_list_is_reported_and_no_later_one():
    made, listed = requests()
    for what in ("list", "list", "watch", "watch", "watch"):  # two pages, two reconnects
        send(made, what, "/api/v1/pods")
    assert listed == [(POD, None)]


def test_a_list_is_not_reported_before_its_watch_begins():
    made, listed = requests()
    send(made, "list", "/api/v1/pods")
    assert listed == []


def test_each_list_that_is_made_again_is_reported():
    made, listed = requests()
    for what in ("list", "watch", "list", "watch"):
        send(made, what, "/api/v1/pods")
    assert listed == [(POD, None)] * 2


def test_namespaces_and_kinds_are_told_apart():
    made, listed = requests("a", "b")
    send(made, "list", POD.path("a"))
    for path in (POD.path("b"), INPUT.path("a"), POD.path(None)):
        send(made, "watch", path)
    assert listed == []
    send(made, "list", POLICY.path(None))
    send(made, "watch", POLICY.path(None))
    send(made, "watch", POD.path("a"))
    assert listed == [(POLICY, None), (POD, "a")]


def test_the_servers_address_may_have_a_path():
    made, listed = requests()
    for what in ("list", "watch"):
        send(made, what, "/k8s/clusters/one/api/v1/pods")
    assert listed == [(POD, None)]


def test_other_requests_are_ignored():
    made, listed = requests("a")
    for what in ("list", "watch"):
        send(made, what, "/apis/apps/v1")
    assert listed == []
