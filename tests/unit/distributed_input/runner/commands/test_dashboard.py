"""The command `dashboard`: its flags, and the data that it serves."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator

import pytest

from distributed_input import cli
from distributed_input.runner.commands import dashboard
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.display.stats import StatusSample
from tests.unit.distributed_input.runner.samples import consumer, worker


def test_the_view_is_what_the_other_commands_print():
    history = InputHistory("train")
    history.add(StatusSample([consumer()], [worker()]), 1.0)
    found = dashboard.view(history)
    assert found["status"]["workers"][0]["address"] == "w:1"
    assert found["rates"]["consumers"][0]["job"] == "train"
    assert found["trainers"][0]["trainer"] == "train/0"


def test_bad_flags_are_status_2(called):
    """They are not the state of runs, which may change while the page is open."""
    assert "--namespace: set NAME too" in called(["dashboard", "-n", "team", "--port", "0"], 2).err


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_a_port_is_a_number(port):
    assert cli.main(["dashboard", "--port", port]) == 2


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
def test_a_signal_ends_it_like_ctrl_c(number, tmp_path, monkeypatch):
    @contextlib.contextmanager
    def serving(*_: object) -> Iterator[str]:
        signal.raise_signal(number)
        raise AssertionError("the signal had no effect")
        yield ""

    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setattr(dashboard, "serving", serving)
    former = signal.signal(number, signal.SIG_DFL)
    try:
        assert cli.main(["dashboard", "--seconds", "0.1", "--timeout", "0.1"]) == 0
    finally:
        signal.signal(number, former)


def test_an_ignored_signal_stays_ignored():
    former = signal.signal(signal.SIGHUP, signal.SIG_IGN), signal.getsignal(signal.SIGTERM)
    try:
        dashboard._end_on_signals()
        assert signal.getsignal(signal.SIGHUP) is signal.SIG_IGN
    finally:
        for number, handler in zip((signal.SIGHUP, signal.SIGTERM), former, strict=True):
            signal.signal(number, handler)


def test_the_command_for_another_machine_has_a_terminal():
    """Without one, the end of ssh does not end the command."""
    assert "ssh -t -L" in str(dashboard.dashboard.epilog)
