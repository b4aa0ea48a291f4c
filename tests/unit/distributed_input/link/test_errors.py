from __future__ import annotations

from distributed_input.link.errors import internal_error


def test_a_bug_is_reported_with_its_class() -> None:
    assert str(internal_error(KeyError("x"))) == "the sidecar failed: KeyError: 'x'"
