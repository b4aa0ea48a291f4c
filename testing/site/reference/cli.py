"""The page about the command line, from the parsers."""

from __future__ import annotations

import argparse
import importlib
import inspect
from collections.abc import Iterator

import click

from distributed_input import cli
from testing.site.reference.markdown import code, fenced, table


def page() -> str:
    """Return the page."""
    text = "# Command line\n\n`distributed-input COMMAND`, or `kubectl dinput COMMAND`.\n\n"
    commands = {**cli.COMMANDS, **cli.PROCESSES, **cli.PLUGINS}
    rows = [[f"[`{name}`](#{name})", about] for name, about in commands.items()]
    text += table(("Command", "What it does"), rows)
    return text + "".join(map(_section, commands))


def _section(command: str) -> str:
    if command in cli.COMMANDS:
        return _of_click(command_of(command))
    parser = parser_of(command)
    description = (parser.description or "").strip()
    text = f"## {command}\n\n{fenced(_usage(parser))}{description}\n\n"
    rows = [[_names(one), _help(one, parser)] for one in parser._actions if one.dest != "help"]
    if rows:
        text += table(("Argument", "Description"), rows)
    return text + (fenced(parser.epilog) if parser.epilog else "")


def _of_click(command: click.Command) -> str:
    context = command.make_context(f"distributed-input {command.name}", [], resilient_parsing=True)
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    text = f"## {command.name}\n\n{fenced(usage)}{inspect.cleandoc(command.help or '')}\n\n"
    found = [one.get_help_record(context) for one in command.params]
    text += table(("Argument", "Description"), [[code(one[0]), one[1]] for one in found if one])
    return text + fenced(command.epilog or "")


def command_of(command: str) -> click.Command:
    """Return a command for users."""
    module = importlib.import_module(f"distributed_input.runner.commands.{command}")
    found: click.Command = getattr(module, command)
    return found


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a process or of another distribution's command."""
    name = "distributed_input_operator.inject"
    module = importlib.import_module(
        name if command in cli.PLUGINS else f"distributed_input.{command}.main"
    )
    make = getattr(module, "parser", None) or module._parser
    parser: argparse.ArgumentParser = make()
    return parser


def _usage(parser: argparse.ArgumentParser) -> str:
    # Without the flags, which the table lists.
    words = list(_required(parser))
    return parser.usage or " ".join([parser.prog, "[flags]", *words])


def _required(parser: argparse.ArgumentParser) -> Iterator[str]:
    for one in parser._actions:
        name = str(one.metavar or one.dest)
        if one.option_strings and one.required:
            yield f"{one.option_strings[-1]} {name}"
        elif not one.option_strings:
            yield f"[{name}]" if one.nargs == "?" else name


def _names(one: argparse.Action) -> str:
    if not one.option_strings:
        return code(one.metavar or one.dest)
    value = one.metavar or ("" if one.nargs == 0 else one.dest.upper())
    if one.choices:
        value = "{" + ",".join(map(str, one.choices)) + "}"
    return ", ".join(code(f"{name} {value}".strip()) for name in one.option_strings)


def _help(one: argparse.Action, parser: argparse.ArgumentParser) -> str:
    values = {**vars(one), "prog": parser.prog}
    return (one.help or "") % values
