"""The ready file."""

from __future__ import annotations

import json
import os

import pytest

from distributed_input.api.errors import ConfigError
from distributed_input.runtime import ready


def test_the_ready_file_is_written_atomically(tmp_path):
    path = tmp_path / "ready"
    ready.write(str(path), "h:1", None)
    assert json.loads(path.read_text()) == {"address": "h:1", "metrics": None, "pid": os.getpid()}
    assert [p.name for p in tmp_path.iterdir()] == ["ready"]


def test_the_error_names_a_ready_file_that_cannot_be_written(tmp_path):
    with pytest.raises(ConfigError, match=r"--ready-file .*/no/ready: No such file"):
        ready.write(str(tmp_path / "no" / "ready"), "h:1", None)
    ready.write(None, "h:1", None)
