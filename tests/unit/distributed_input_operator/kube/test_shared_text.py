"""Texts that are kept once, unless Python would never free them."""

from __future__ import annotations

import pytest

from distributed_input_operator.kube import shared_text


@pytest.mark.parametrize(
    ("version", "once"),
    [
        ((3, 11, 9), True),
        ((3, 12, 0), False),
        ((3, 12, 6), False),
        ((3, 12, 7), True),
        ((3, 13, 0), True),
    ],
)
def test_a_text_is_interned_if_python_frees_it(monkeypatch, version, once):
    monkeypatch.setattr(shared_text.sys, "version_info", (*version, "final", 0))
    first, second = ("-".join(["team", str(version)]) for _ in range(2))
    assert (shared_text.shared(first) is shared_text.shared(second)) is once
