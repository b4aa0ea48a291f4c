"""The table of permissions in docs/security.md."""

from __future__ import annotations

from testing.charts.permissions import PAGE, page, rules


def test_the_page_has_the_current_permissions():
    current = PAGE.read_text()
    assert page(current) == current, "run `make permissions`"


def test_every_permission_has_a_reason():
    assert [one for one in rules() if not one.reason] == []


def test_no_process_reads_secrets_of_other_namespaces():
    cluster = [one for one in rules() if one.scope == "cluster" and "secrets" in one.resources]
    assert [(one.process, one.verbs) for one in cluster] == [("operator", "create")]
    own = [one for one in rules() if one.scope != "cluster" and "secrets" in one.resources]
    assert all("named" in one.resources for one in own if one.verbs != "create")
