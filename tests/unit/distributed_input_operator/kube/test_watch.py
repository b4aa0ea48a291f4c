"""kopf's requests show when a watch begins after a list."""

from __future__ import annotations

from distributed_input_operator.kube.kinds import INPUT, POD, POLICY, Kind
from distributed_input_operator.kube.watch import _RequestTracker

Listed = list[tuple[Kind, str | None]]


def requests(*namespaces: str) -> tuple[_RequestTracker, Listed]:
    listed: Listed = []
    tracker = _RequestTracker([INPUT, POD, POLICY], namespaces, lambda *place: listed.append(place))
    return tracker, listed


def send(tracker: _RequestTracker, what: str, path: str) -> None:
    tracker.sent(path, watches=what == "watch")


def test_the_first_watch_after_a_list_is_reported_and_no_later_one():
    tracker, listed = requests()
    for what in ("list", "list", "watch", "watch", "watch"):  # Two pages, two reconnects.
        send(tracker, what, "/api/v1/pods")
    assert listed == [(POD, None)]


def test_a_list_is_not_reported_before_its_watch_begins():
    tracker, listed = requests()
    send(tracker, "list", "/api/v1/pods")
    assert listed == []


def test_each_repeated_list_is_reported():
    tracker, listed = requests()
    for what in ("list", "watch", "list", "watch"):
        send(tracker, what, "/api/v1/pods")
    assert listed == [(POD, None)] * 2


def test_namespaces_and_kinds_are_distinguished():
    tracker, listed = requests("a", "b")
    send(tracker, "list", POD.path("a"))
    for path in (POD.path("b"), INPUT.path("a"), POD.path(None)):
        send(tracker, "watch", path)
    assert listed == []
    send(tracker, "list", POLICY.path(None))
    send(tracker, "watch", POLICY.path(None))
    send(tracker, "watch", POD.path("a"))
    assert listed == [(POLICY, None), (POD, "a")]


def test_the_servers_address_may_have_a_path():
    tracker, listed = requests()
    for what in ("list", "watch"):
        send(tracker, what, "/k8s/clusters/one/api/v1/pods")
    assert listed == [(POD, None)]


def test_other_requests_are_ignored():
    tracker, listed = requests("a")
    for what in ("list", "watch"):
        send(tracker, what, "/apis/apps/v1")
    assert listed == []
