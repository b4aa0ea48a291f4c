from __future__ import annotations

import pytest

from distributed_input.graph import native_ops


@pytest.fixture(autouse=True)
def elements_have_the_structure_of_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests here read the elements of splits. With the native op, these are packed rows."""
    monkeypatch.setattr(native_ops, "library", lambda: None)
