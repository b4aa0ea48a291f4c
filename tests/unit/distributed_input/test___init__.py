"""Completion in a notebook shows the names that users need, and no others."""

from __future__ import annotations

import distributed_input


def test_dir_has_the_public_names() -> None:
    shown = {name for name in dir(distributed_input) if not name.startswith("_")}
    assert shown == {*distributed_input.__all__, "keras"}
    assert {"local", "LocalRun", "connect"} <= shown
    assert {"__doc__", "__file__", "__all__"} <= set(dir(distributed_input))


def test_each_name_exists() -> None:
    for name in dir(distributed_input):
        getattr(distributed_input, name)
