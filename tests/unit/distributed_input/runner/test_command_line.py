"""What the commands share: values of flags, and errors."""

from __future__ import annotations

import click
import pytest

from distributed_input.api.errors import ConfigError, UnavailableError
from distributed_input.runner.command_line import POSITIVE_SECONDS, SECONDS, argument, command


@pytest.mark.parametrize("text", ["-1", "nan", "inf", "x", ""])
def test_seconds_are_a_number(text):
    with pytest.raises(click.BadParameter):
        SECONDS(text)


def test_a_time_limit_is_more_than_0_seconds():
    assert SECONDS("0") == 0
    assert POSITIVE_SECONDS("0.5") == 0.5
    with pytest.raises(click.BadParameter):
        POSITIVE_SECONDS("0")


@pytest.mark.parametrize(("error", "status"), [(ConfigError, 2), (UnavailableError, 1)])
def test_an_error_is_one_line(error, status, capsys):
    @command("")
    def fail() -> int:
        raise error("the cause")

    assert fail.main([], prog_name="distributed-input fail", standalone_mode=False) == status
    assert capsys.readouterr() == ("", "distributed-input fail: the cause\n")


def test_help_has_the_lines_of_the_docstring_and_of_the_examples(capsys):
    @command("examples:\n  a   b\n")
    @argument("file", help="A file.")
    def show(file: str) -> int:
        """Show it,
        line by line.
        """
        return 0

    show.main(["-h"], prog_name="show", standalone_mode=False)
    text = capsys.readouterr().out
    assert "\n\nShow it,\nline by line.\n" in text
    assert text.endswith("\n\nexamples:\n  a   b\n")
    assert "FILE" in text.partition("line.")[2].partition("A file.")[0]
