"""A YAML writer whose text has the same meaning in YAML 1.1 and YAML 1.2, and in kubectl."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

import yaml

# Text that is a string in every version of YAML. All other text is quoted.
_PLAIN = re.compile(r"[A-Za-z_/$][A-Za-z0-9_./$()=-]*([:,@][A-Za-z0-9_./$()=-]+)*")
_RESERVED = frozenset("y n yes no on off true false null".split())
_OTHER_BREAKS = re.compile("[\r\x85\u2028\u2029]")  # a block would not keep them
_NO_WRAP = 1 << 20


class _Dumper(yaml.SafeDumper):
    """PyYAML's safe dumper with other rules for quotes, and without anchors."""

    def ignore_aliases(self, _data: Any) -> bool:
        return True


def _represent_text(dumper: yaml.SafeDumper, data: str) -> yaml.Node:
    style: str | None = "'" if '"' in data and data.isprintable() else '"'
    if "\n" in data and not _OTHER_BREAKS.search(data):
        style = "|"
    if _PLAIN.fullmatch(data) and data.lower() not in _RESERVED:
        style = None
    return dumper.represent_scalar("tag:yaml.org,2002:str", data, style=style)


_Dumper.add_representer(str, _represent_text)


def dump_yaml(values: Iterable[Any]) -> str:
    """Return JSON values as YAML documents. Keys keep their order."""
    text: str = yaml.dump_all(
        values,
        Dumper=_Dumper,
        sort_keys=False,
        explicit_start=True,
        allow_unicode=True,
        width=_NO_WRAP,
    )
    return text
