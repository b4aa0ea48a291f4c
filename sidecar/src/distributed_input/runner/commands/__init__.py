"""The commands for users, each in a module that is imported when the command is called."""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import click

from distributed_input.runner.command_line import SETTINGS
from distributed_input.runtime.args import suggestion

COMPLETE_VARIABLE = "_DISTRIBUTED_INPUT_COMPLETE"
"""Variable by which a shell asks for what completes a command."""
_EXAMPLES = """
examples:
  distributed-input init photos                            # start here
  distributed-input run input.yaml -- python train.py
  distributed-input run --help                             # flags of one command
  distributed-input validate input.yaml --trainers 4
  distributed-input bench input.yaml                       # what would workers gain?
  distributed-input explain                                # why does my trainer wait?

`kubectl dinput COMMAND` is the same, for example `kubectl dinput explain digits -n team`.
Pods run `dispatcher`, `worker` and `sidecar`. On one machine, `run` starts them.
"""


class Commands(click.Group):
    """All commands of `distributed-input`. `others` are those that are no commands of click."""

    def __init__(self, own: Mapping[str, str], others: Mapping[str, str]) -> None:
        version = click.Option(["--version"], is_flag=True, help="Print the version.")
        super().__init__(
            params=[version],
            help="Input pipelines for accelerators, run by Kubernetes or on one machine.",
            context_settings=SETTINGS,
            no_args_is_help=False,
        )
        self._own, self._texts = own, {**own, **others}

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of all commands."""
        return list(self._texts)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None if there is none with this name."""
        if cmd_name in self._own:
            module = importlib.import_module(f"{__name__}.{cmd_name}")
            found: click.Command = getattr(module, cmd_name)
            return found
        if cmd_name in self._texts:
            return click.Command(cmd_name, help=self._texts[cmd_name])
        return None

    def resolve_command(self, ctx: click.Context, args: list[str]) -> Any:
        """Return the command in the arguments, or fail with the name that is most similar."""
        if not ctx.resilient_parsing and self.get_command(ctx, args[0]) is None:
            ctx.fail(f"unknown command {args[0]}{suggestion(args[0], self._texts)}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the list of commands without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(self._texts.items()))

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples."""
        formatter.write(_EXAMPLES)

    def status(self, arguments: Sequence[str]) -> int:
        """Run the command in the arguments; return the exit status."""
        try:
            with self.make_context("distributed-input", list(arguments)) as context:
                return int(self.invoke(context) or 0)
        except click.exceptions.Exit as end:  # after --help
            return end.exit_code
        except click.Abort as end:  # of a question: Ctrl-C, or no answer
            if isinstance(end.__context__, KeyboardInterrupt):
                raise KeyboardInterrupt from None
            click.echo("distributed-input: no answer: set the flags, see --help", err=True)
            return 2
        except click.ClickException as error:
            error.show()
            return error.exit_code
