"""The kind of a node names its processor and operating system."""

from __future__ import annotations

import builtins
import io
import platform
from typing import Any

import pytest

from distributed_input.worker import node


@pytest.mark.parametrize(
    ("cpuinfo", "model"),
    [
        (
            "processor : 0\nmodel name\t: Fast CPU @ 3 GHz\nmodel name\t: other\n",
            "Fast CPU @ 3 GHz",
        ),
        ("processor : 0\n", "any CPU"),
        (None, "any CPU"),
    ],
)
def test_the_kind_is_the_first_model_name_or_the_processor(
    monkeypatch: pytest.MonkeyPatch, cpuinfo: str | None, model: str
) -> None:
    def fake_open(path: str, *args: Any) -> Any:
        assert path == "/proc/cpuinfo"
        if cpuinfo is None:
            raise FileNotFoundError(path)
        return io.StringIO(cpuinfo)

    monkeypatch.setattr(platform, "processor", lambda: "any CPU")
    monkeypatch.setattr(builtins, "open", fake_open)
    kind = node.node_kind()
    monkeypatch.undo()
    assert kind == f"{model} ({platform.system()})"
