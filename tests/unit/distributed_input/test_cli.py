"""The command `distributed-input` and its subcommands."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import subprocess
import sys

import pytest

from distributed_input import cli


def test_help_names_every_subcommand(capsys):
    assert cli.main(["--help"]) == 0
    text = capsys.readouterr().out
    for name in ("run", "status", "dispatcher", "worker", "sidecar", "inject", "examples:"):
        assert name in text


@pytest.mark.parametrize("name", [*cli.COMMANDS, "inject"])
def test_a_subcommands_help_has_examples(name, capsys):
    with contextlib.suppress(SystemExit):  # of argparse
        assert cli.main([name, "--help"]) == 0
    assert f"distributed-input {name} " in capsys.readouterr().out.split("examples:")[1]


def test_an_unknown_subcommand_is_status_2(capsys):
    assert cli.main(["runn"]) == 2
    assert "unknown command runn: did you mean run?" in capsys.readouterr().err


def test_no_subcommand_is_status_2(capsys):
    assert cli.main([]) == 2
    assert "distributed-input --help" in capsys.readouterr().err


def test_help_of_a_command(capsys):
    assert cli.main(["help"]) == 0
    assert "examples:" in capsys.readouterr().out
    assert cli.main(["help", "top"]) == 0
    assert "Usage: distributed-input top" in capsys.readouterr().out
    assert cli.main(["help", "topp"]) == 2


@pytest.mark.parametrize("name", ["logs", "doctor", "explain", "inject"])
def test_ctrl_c_is_status_130_without_a_traceback(name, monkeypatch, capsys):
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_entry", lambda command: interrupted)
    assert cli.main([name]) == 130
    assert capsys.readouterr() == ("", "")


def test_a_process_with_its_own_signals_gets_ctrl_c(monkeypatch):
    def interrupted(argv: list[str]) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(cli, "_entry", lambda command: interrupted)
    with pytest.raises(KeyboardInterrupt):
        cli.main(["worker"])


def test_a_name_that_the_locale_cannot_encode_is_printed_with_escapes():
    code = "from distributed_input.cli import main; main(['--version']); print('gr\\xf6\\udce9')"
    ascii_only = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    for locale in (ascii_only, {"PYTHONUTF8": "1", "PYTHONIOENCODING": "utf-8:strict"}):
        done = subprocess.run(
            [sys.executable, "-c", code], capture_output=True, env={**os.environ, **locale}
        )
        assert done.stdout.endswith(b"\\udce9\n"), done.stderr


@pytest.mark.parametrize("flush", ["True", "False"])
def test_an_output_that_nobody_reads_is_status_141(flush):
    """Without `flush`, the text is still in Python's buffer when the command returns."""
    code = (
        "import sys; from distributed_input import cli; "
        f"cli._entry = lambda name: lambda argv: print('text', flush={flush}) or 0; "
        "sys.exit(cli.main(['doctor']))"
    )
    env = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    reader, writer = os.pipe()
    os.close(reader)
    with os.fdopen(writer, "w") as closed:
        done = subprocess.run(
            [sys.executable, "-c", code], env=env, stdout=closed, stderr=subprocess.PIPE, text=True
        )
    assert (done.returncode, done.stderr) == (141, "")


@pytest.mark.parametrize("name", ["version", "--version"])
def test_version(name, capsys):
    assert cli.main([name]) == 0
    assert capsys.readouterr().out.startswith("distributed-input ")


def test_a_subcommand_does_not_import_the_others():
    code = (
        "import sys; from distributed_input import cli; cli.main(['version']); "
        "print(*(m for m in sys.modules if m.startswith(('grpc', 'tensorflow', "
        "'distributed_input.runner', 'distributed_input.worker'))))"
    )
    printed = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    ).stdout.splitlines()
    assert printed[1:] == [""]


@pytest.mark.parametrize(
    ("command", "extra"), [("status", "cli"), ("run", "run"), ("--help", "cli")]
)
def test_without_the_packages_of_commands_the_remedy_is_printed(
    command, extra, monkeypatch, capsys
):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    assert cli.main([command]) == 2
    assert capsys.readouterr().err == (
        "distributed-input: click and psutil not installed: run `pip install "
        f"'distributed-input[{extra}]'`\n"
    )


def test_the_processes_of_pods_need_no_package_of_commands():
    code = (
        "import sys; sys.modules.update(click=None, psutil=None); "
        "from distributed_input import cli; cli.main(['version']); cli.main(['sidecar', '--help'])"
    )
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (printed.returncode, printed.stderr) == (0, "")
