"""`distributed-input completion`: a script that completes commands and flags in a shell."""

from __future__ import annotations

import argparse
import importlib
from collections.abc import Mapping, Sequence

from distributed_input.runtime.args import CommandParser

_COMPLETED = tuple(
    "bench completion dashboard doctor explain init logs run status top validate".split()
)
_OTHERS = tuple("dispatcher help inject sidecar version worker".split())
_EXAMPLES = """\
examples:
  source <(distributed-input completion bash)   # also in ~/.bashrc
  source <(distributed-input completion zsh)    # also in ~/.zshrc, after compinit
  distributed-input completion fish > ~/.config/fish/completions/distributed-input.fish
"""
_BASH = """\
_distributed_input() {{
  local current="${{COMP_WORDS[COMP_CWORD]}}" words="" i
  for ((i = 1; i < COMP_CWORD; i++)); do
    [[ "${{COMP_WORDS[i]}}" == -- ]] || continue
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
    return
  done
  if ((COMP_CWORD == 1)); then
    words="{commands}"
  elif [[ "$current" == -* ]]; then
    case "${{COMP_WORDS[1]}}" in
{cases}
    esac
  else
    compopt -o filenames 2>/dev/null
    COMPREPLY=($(compgen -f -- "$current"))
    return
  fi
  COMPREPLY=($(compgen -W "$words" -- "$current"))
}}
complete -F _distributed_input distributed-input
"""


def parser() -> argparse.ArgumentParser:
    """Return the parser of `distributed-input completion`."""
    flags = CommandParser(
        prog="distributed-input completion",
        description="Print a script that completes commands and flags in a shell.",
        epilog=_EXAMPLES,
    )
    flags.add_argument("shell", choices=("bash", "zsh", "fish"), help="the shell")
    return flags


def main(argv: Sequence[str]) -> int:
    """Print the script; return the exit status."""
    print(script(parser().parse_args(argv).shell, _flags()), end="")
    return 0


def _flags() -> dict[str, list[str]]:
    """Return the flags of each command for users."""
    found = {}
    for command in _COMPLETED:
        module = importlib.import_module(f"distributed_input.runner.commands.{command}")
        actions = module.parser()._actions  # noqa: SLF001 - argparse has no other list of flags
        found[command] = [name for one in actions for name in one.option_strings]
    return found


def script(shell: str, flags: Mapping[str, Sequence[str]]) -> str:
    """Return the script of a shell: bash, zsh or fish.

    Args:
        shell: its name.
        flags: the flags of each command.
    """
    commands = sorted([*flags, *_OTHERS])
    if shell == "fish":
        lines = [
            f"complete -c distributed-input -n __fish_use_subcommand -f -a {command}"
            for command in commands
        ]
        for command, names in flags.items():
            known = f"complete -c distributed-input -n '__fish_seen_subcommand_from {command}'"
            lines += [f"{known} {_fish_flag(name)}" for name in names]
        return "".join(f"{line}\n" for line in lines)
    cases = "\n".join(f'      {one}) words="{" ".join(names)}" ;;' for one, names in flags.items())
    text = _BASH.format(commands=" ".join(commands), cases=cases)
    return f"autoload -U +X bashcompinit && bashcompinit\n{text}" if shell == "zsh" else text


def _fish_flag(name: str) -> str:
    return f"-l {name[2:]}" if name.startswith("--") else f"-s {name[1:]}"
