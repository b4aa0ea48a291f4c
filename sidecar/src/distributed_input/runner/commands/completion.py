"""`distributed-input completion`: a script that completes commands and flags in a shell."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from distributed_input.runner.command_line import argument, command
from distributed_input.runner.commands import COMPLETE_VARIABLE

_EXAMPLES = """\
examples:
  source <(distributed-input completion bash)   # also in ~/.bashrc
  source <(distributed-input completion zsh)    # also in ~/.zshrc, after compinit
  distributed-input completion fish > ~/.config/fish/completions/distributed-input.fish
"""


@command(_EXAMPLES)
@argument("shell", type=click.Choice(["bash", "zsh", "fish"]), help="The shell.")
@click.pass_context
def completion(context: click.Context, shell: str) -> int:
    """Print a script that completes commands and flags in a shell."""
    shell_class = get_completion_class(shell)
    assert shell_class is not None
    root = context.find_root()
    click.echo(shell_class(root.command, {}, "distributed-input", COMPLETE_VARIABLE).source())
    return 0
