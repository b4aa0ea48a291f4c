"""Certificates are renewed by what is in the cluster; nothing else is remembered."""

from __future__ import annotations

from datetime import timedelta

import pytest

from distributed_input.api import files, identity
from distributed_input_operator.certificates.renewal import MOUNTED_ROLES, renewed
from testing.certificates import LIFE, authority, now

AT = now().replace(microsecond=0)


def test_a_new_input_gets_a_certificate_for_each_role() -> None:
    found = renewed(authority(), {}, AT, LIFE)
    roles = {files.certificate(role) for role in MOUNTED_ROLES}
    assert found.data.keys() == {files.AUTHORITIES_KEY, *roles}
    assert found.seconds == 2400


def test_the_operator_has_no_certificate_in_the_cluster() -> None:
    assert identity.OPERATOR not in MOUNTED_ROLES


@pytest.mark.parametrize("minutes", [0, 10, 39])
def test_nothing_changes_before_a_certificate_is_due(minutes: int) -> None:
    first = renewed(authority(), {}, AT, LIFE)
    later = renewed(authority(), first.data, AT + timedelta(minutes=minutes), LIFE)
    assert later.data == first.data
    assert later.seconds == 2400 - 60 * minutes


def test_what_is_due_is_renewed() -> None:
    first = renewed(authority(), {}, AT, LIFE)
    later = renewed(authority(), first.data, AT + timedelta(minutes=41), LIFE)
    changed = {key for key in first.data if later.data[key] != first.data[key]}
    assert changed == set(first.data) - {files.AUTHORITIES_KEY}, "the authority is not due"


@pytest.mark.parametrize("text", [None, "", "broken"])
def test_only_a_damaged_certificate_is_replaced(text: str | None) -> None:
    first = dict(renewed(authority(), {}, AT, LIFE).data)
    key = files.certificate(identity.WORKER)
    damaged = {name: value for name, value in first.items() if name != key}
    found = renewed(authority(), damaged if text is None else {**damaged, key: text}, AT, LIFE)
    assert {name for name in first if found.data[name] != first[name]} == {key}


def test_keys_of_another_input_are_not_kept() -> None:
    first = renewed(authority("u-1"), {}, AT, LIFE)
    second = renewed(authority("u-2"), first.data, AT, LIFE)
    assert all(second.data[key] != first.data[key] for key in first.data)
