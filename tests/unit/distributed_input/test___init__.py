"""Completion in a notebook shows the names that users need, and no others."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

import distributed_input


def test_dir_has_the_public_names() -> None:
    shown = {name for name in dir(distributed_input) if not name.startswith("_")}
    assert {*distributed_input.__all__, "keras"} <= shown
    assert shown <= {*distributed_input.__all__, "keras", "transformers"}
    assert {"local", "LocalRun", "connect"} <= shown
    assert {"__doc__", "__file__", "__all__"} <= set(dir(distributed_input))


def test_each_name_exists() -> None:
    for name in dir(distributed_input):
        getattr(distributed_input, name)


@pytest.mark.parametrize("is_installed", [False, True])
def test_a_framework_that_is_not_installed_is_not_shown(
    is_installed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def find_spec(name: str) -> Any:
        return object() if is_installed else None

    monkeypatch.setattr(importlib.util, "find_spec", find_spec)
    assert ({"keras", "transformers"} <= set(dir(distributed_input))) is is_installed
