"""YAML that kubectl reads as we mean it, whatever version of YAML it takes a word for."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

# Text that no YAML takes for anything else; all other text goes into quotes.
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_./$()=-]*([:,@][A-Za-z0-9_./$()=-]+)*")
_WORDS = frozenset("y n yes no on off true false null".split())


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper, careful with text, without anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    style: str | None = "'" if '"' in data and data.isprintable() else '"'
    if "\n" in data:
        style = "|"
    if _PLAIN.fullmatch(data) and data.lower() not in _WORDS:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _text)
_ENDLESS = 1 << 20


def dumped(values: Iterable[Any]) -> str:
    """Documents of plain JSON values, keys in their order."""
    made: str = yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        width=_ENDLESS,
    )
    return made
