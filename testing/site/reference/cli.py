"""The page about the command line, from the parsers."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Iterator

from distributed_input import cli
from testing.site.reference.markdown import code, fenced, table


def page() -> str:
    """Return the page."""
    text = "# Command line\n\n`distributed-input COMMAND`, or `kubectl dinput COMMAND`.\n\n"
    commands = {**cli._COMMANDS, **cli._PLUGINS}
    rows = [[f"[`{name}`](#{name})", about] for name, (_, about) in commands.items()]
    text += table(("Command", "What it does"), rows)
    return text + "".join(map(_section, commands))


def _section(command: str) -> str:
    parser = parser_of(command)
    description = (parser.description or "").strip()
    text = f"## {command}\n\n{fenced(_usage(parser))}{description}\n\n"
    rows = [[_names(one), _help(one, parser)] for one in parser._actions if one.dest != "help"]
    if rows:
        text += table(("Argument", "Description"), rows)
    return text + (fenced(parser.epilog) if parser.epilog else "")


def parser_of(command: str) -> argparse.ArgumentParser:
    """Return the parser of a command."""
    if command in cli._PLUGINS:
        module = importlib.import_module("distributed_input_operator.inject")
    else:
        module = importlib.import_module(cli._COMMANDS[command][0])
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
