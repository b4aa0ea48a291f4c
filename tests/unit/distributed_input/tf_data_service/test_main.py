"""The workers in the value of --static-workers."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.tf_data_service.main import resolve, static_workers


def nobody(name: str) -> list[str]:
    pytest.fail(f"{name} was looked up")


def test_addresses_are_returned_unchanged():
    assert static_workers("", nobody) == []
    assert static_workers("a:1,b:2", nobody) == ["a:1", "b:2"]


def test_a_name_has_its_addresses_when_all_are_there():
    found = ["10.0.0.1", "10.0.0.2"]
    assert static_workers("dns:w:7081:2", lambda _: found) == ["10.0.0.1:7081", "10.0.0.2:7081"]
    assert static_workers("dns:w:7081:3", lambda _: found) is None
    assert static_workers("dns:w:7081:1", lambda _: found) is None


@pytest.mark.parametrize("value", ["dns:w", "dns:w:x:2", "dns:w:7081", "dns:w:7081:many"])
def test_a_name_without_port_and_count_is_rejected(value):
    with pytest.raises(ConfigError, match="dns:NAME:PORT:COUNT"):
        static_workers(value, nobody)


def test_an_unknown_name_has_no_addresses():
    assert resolve("no-such-name.invalid") == []
    assert "127.0.0.1" in resolve("localhost")
