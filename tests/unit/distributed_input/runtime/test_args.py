"""The common flags."""

from __future__ import annotations

import json
import logging

import pytest

from distributed_input.api.environment import CONFIG_ENV
from distributed_input.api.errors import ConfigError, TerminalError, UnavailableError
from distributed_input.runtime import args


def test_the_common_flags_have_defaults():
    parser = args.parser("worker", "Works.")
    args.add_listen(parser)
    parsed = parser.parse_args([])
    assert (parsed.listen, parsed.metrics_listen) == ("127.0.0.1:0", "off")
    assert (parsed.grace_seconds, parsed.log_level) == (20.0, "info")
    assert (parsed.token_file, parsed.ready_file) == (None, None)


@pytest.fixture
def parse(monkeypatch):
    """Return a function that parses flags together with the fields of a document."""
    logging.captureWarnings(False)
    root = logging.getLogger()
    before = root.handlers[:], root.level

    def parse(argv, **fields):
        monkeypatch.setenv(CONFIG_ENV, json.dumps({"version": 1, **fields}))
        return args.parse("worker", args.parser("worker", "Works."), argv)

    yield parse
    logging.captureWarnings(False)
    root.handlers[:], _ = before
    root.setLevel(before[1])


def test_a_document_sets_values_and_flags_override_them(parse):
    parsed = parse(["--ready-file", "/flag"], readyFile="/document", graceSeconds=3)
    assert (parsed.ready_file, parsed.grace_seconds) == ("/flag", 3.0)


def test_a_document_may_have_a_required_value(monkeypatch):
    parser = args.parser("worker", "Works.")
    parser.add_argument("--dispatcher", required=True)
    monkeypatch.setattr(args.logs, "setup", lambda *_: None)
    monkeypatch.setenv(CONFIG_ENV, '{"version": 1, "dispatcher": "d:1"}')
    assert args.parse("worker", parser, []).dispatcher == "d:1"


def test_fields_of_a_later_release_are_ignored_with_one_line_that_names_them(parse, capsys):
    later = {"newFolder": "/a b", "newSwitch": True, "newList": [1, 2], "newObject": {"a": 1}}
    assert parse([], **later, graceSeconds=3).grace_seconds == 3.0
    (line,) = map(json.loads, capsys.readouterr().err.splitlines())
    assert line["level"] == "warning"
    assert line["settings"] == ["newFolder", "newList", "newObject", "newSwitch"]


def test_without_unknown_fields_nothing_is_logged(parse, capsys):
    parse([], graceSeconds=3)
    assert not capsys.readouterr().err


def test_an_unknown_flag_is_refused_also_with_a_document(parse, capsys):
    with pytest.raises(SystemExit) as caught:
        parse(["--new-folder", "/a"], newFolder="/a")
    assert caught.value.code == 2
    assert "unknown flag --new-folder\n" in capsys.readouterr().err


def test_an_invalid_value_of_a_document_exits_with_status_2(parse, capsys):
    with pytest.raises(SystemExit) as caught:
        parse([], graceSeconds="soon")
    assert caught.value.code == 2
    assert "--grace-seconds: 'soon' is not a number of seconds" in capsys.readouterr().err


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
