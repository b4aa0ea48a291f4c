"""Calls of the command `distributed-input`."""

from __future__ import annotations

import pytest

from distributed_input import cli


@pytest.fixture
def called(capsys):
    """Return a function that runs a command, checks its status, and returns what it printed."""

    def call(arguments, status=0):
        assert cli.main(arguments) == status
        return capsys.readouterr()

    return call
