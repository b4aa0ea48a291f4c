"""The common flags."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError, TerminalError, UnavailableError
from distributed_input.runtime import args


def test_the_common_flags_have_defaults():
    parser = args.parser("worker", "Works.")
    args.add_listen(parser)
    parsed = parser.parse_args([])
    assert (parsed.listen, parsed.metrics_listen) == ("127.0.0.1:0", "off")
    assert (parsed.grace_seconds, parsed.log_level) == (20.0, "info")
    assert (parsed.token_file, parsed.ready_file) == (None, None)


@pytest.mark.parametrize("value", ["-1", "x", "nan", "inf"])
def test_an_invalid_duration_exits_with_status_2(value, capsys):
    with pytest.raises(SystemExit) as caught:
        args.parser("worker", "Works.").parse_args([f"--grace-seconds={value}"])
    assert caught.value.code == 2
    assert "not a number of seconds" in capsys.readouterr().err


def test_an_invalid_configuration_is_one_line_and_status_2(capsys):
    def body(argv):
        raise ConfigError("--listen x: do this")

    assert args.exit_code("worker", body, []) == 2
    assert capsys.readouterr().err == "distributed-input worker: --listen x: do this\n"


def test_a_start_that_may_succeed_later_is_one_line_and_status_1(capsys):
    def body(argv):
        raise UnavailableError("folder /dev/shm has no room")

    assert args.exit_code("sidecar", body, []) == 1
    assert capsys.readouterr().err == "distributed-input sidecar: folder /dev/shm has no room\n"


def test_other_errors_are_raised():
    def body(argv):
        raise TerminalError("x")

    with pytest.raises(TerminalError):
        args.exit_code("worker", body, [])
