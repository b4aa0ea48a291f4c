"""The earlier name of tf.data service's module."""

from __future__ import annotations

import runpy

import pytest


def test_the_earlier_name_starts_tf_data_service(monkeypatch, capsys):
    monkeypatch.setattr("sys.argv", ["stock", "worker", "--help"])
    with pytest.raises(SystemExit) as caught:
        runpy.run_module("distributed_input.stock", run_name="__main__")
    assert caught.value.code == 0
    assert "--cache-bytes" in capsys.readouterr().out
