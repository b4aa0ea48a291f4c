"""Flags that all processes share, and the ready file."""

from __future__ import annotations

import json
import os

import pytest

from distributed_input.api.errors import ConfigError, TerminalError
from distributed_input.runtime import args, ready


def test_defaults():
    made = args.parser("worker", "Works.")
    args.add_listen(made)
    parsed = made.parse_args([])
    assert (parsed.listen, parsed.metrics_listen) == ("127.0.0.1:0", "off")
    assert (parsed.grace_seconds, parsed.log_level) == (20.0, "info")
    assert (parsed.token_file, parsed.ready_file) == (None, None)


@pytest.mark.parametrize("value", ["-1", "x", "nan", "inf"])
def test_what_is_no_duration_exits_2(value, capsys):
    with pytest.raises(SystemExit) as caught:
        args.parser("worker", "Works.").parse_args([f"--grace-seconds={value}"])
    assert caught.value.code == 2
    assert "not a number of seconds" in capsys.readouterr().err


def test_bad_configuration_is_one_line_and_status_2(capsys):
    def body(argv):
        raise ConfigError("--listen x: do this")

    assert args.exit_code("worker", body, []) == 2
    assert capsys.readouterr().err == "distributed-input worker: --listen x: do this\n"


def test_other_errors_are_not_taken_for_bad_configuration():
    def body(argv):
        raise TerminalError("x")

    with pytest.raises(TerminalError):
        args.exit_code("worker", body, [])


def test_the_ready_file_appears_whole(tmp_path):
    path = tmp_path / "ready"
    ready.write(str(path), "h:1", None)
    assert json.loads(path.read_text()) == {"address": "h:1", "metrics": None, "pid": os.getpid()}
    assert [p.name for p in tmp_path.iterdir()] == ["ready"]


def test_a_ready_file_that_cannot_be_written_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--ready-file .*/no/ready: No such file"):
        ready.write(str(tmp_path / "no" / "ready"), "h:1", None)
    ready.write(None, "h:1", None)
