"""What the commands share: their flags, texts that keep their lines, and errors of one line."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable
from typing import Any, TypeVar

import click

from distributed_input.api.errors import ConfigError, DistributedInputError
from distributed_input.runtime import args

SETTINGS: dict[str, Any] = {"help_option_names": ["--help", "-h"], "max_content_width": 100}
_Function = TypeVar("_Function", bound=Callable[..., Any])


class DescribedArgument(click.Argument):
    """A positional argument with a description, which click lists with the flags."""

    def __init__(self, names: list[str], help: str, **options: Any) -> None:  # noqa: A002 - click's
        super().__init__(names, **options)
        self.help = help

    def get_help_record(self, ctx: click.Context) -> tuple[str, str]:
        """Return its name and its description."""
        return str(self.name).upper(), str(self.help)


class Command(click.Command):
    """A command: its docstring is its description. It returns the exit status."""

    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the description."""
        formatter.write(f"\n{inspect.cleandoc(self.help or '')}\n")

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples and the exit statuses."""
        formatter.write(f"\n{self.epilog}")

    def invoke(self, ctx: click.Context) -> Any:
        """Run the command. Print an error as one line: status 2 if the user's input is invalid."""
        try:
            return super().invoke(ctx)
        except DistributedInputError as error:
            click.echo(f"{ctx.command_path}: {error}", err=True)
            return args.EXIT_CONFIG if isinstance(error, ConfigError) else 1


class _Seconds(click.FloatRange):
    """A time, which `nan` and `inf` are not."""

    name = "seconds"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        seconds = super().convert(value, param, ctx)
        if not math.isfinite(seconds):
            self.fail(f"{value!r} is not a time in seconds", param, ctx)
        return seconds


class _Count(click.IntRange):
    """A number of things, at least one."""

    name = "n"

    def convert(self, value: Any, param: Any, ctx: Any) -> Any:
        try:
            return super().convert(value, param, ctx)
        except click.BadParameter:
            self.fail(f"{value!r} is not a whole number of 1 or more", param, ctx)


COUNT = _Count(1)
SECONDS = _Seconds(0)
POSITIVE_SECONDS = _Seconds(0, min_open=True)


def command(
    examples: str, kind: type[Command] = Command, **options: Any
) -> Callable[[Callable[..., int]], Command]:
    """Return a decorator that makes a function a command with the function's name."""
    settings = {**SETTINGS, "show_default": True}
    return click.command(cls=kind, epilog=examples, context_settings=settings, **options)


def argument(name: str, **options: Any) -> Callable[[_Function], _Function]:
    """Return a decorator that adds a positional argument."""
    return click.argument(name, cls=DescribedArgument, **options)


def seconds(default: float, help: str) -> Callable[[_Function], _Function]:  # noqa: A002 - click's
    """Return a decorator that adds the flag for the time of a measurement, or between two."""
    return click.option("--seconds", type=POSITIVE_SECONDS, default=default, help=help)


def output(json: str) -> Callable[[_Function], _Function]:
    """Return a decorator that adds the flag for the format of the output, text or `json`."""
    choice = click.Choice(["text", "json"])
    return click.option(
        "-o", "--output", type=choice, default="text", help=f"Format: text, or {json}."
    )


def namespace(help: str) -> Callable[[_Function], _Function]:  # noqa: A002 - click's name
    """Return a decorator that adds the flag for a namespace of the cluster."""
    of_context = "Default: that of the kubeconfig's context."
    return click.option("-n", "--namespace", metavar="NAMESPACE", help=f"{help} {of_context}")
