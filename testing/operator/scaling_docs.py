"""The manifests of docs/scaling.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"


def documents() -> list[Any]:
    """All of its YAML."""
    return list(map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", _DOCS.read_text(), re.DOTALL)))


def documented(kind: str) -> dict[str, Any]:
    """Its only manifest of a kind."""
    (found,) = (one for one in documents() if one.get("kind") == kind)
    return found
