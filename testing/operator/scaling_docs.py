"""The manifests of docs/scaling.md."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).parents[2] / "docs" / "scaling.md"


def documented_yaml() -> list[Any]:
    """Return all YAML documents of docs/scaling.md."""
    return list(map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", _DOCS.read_text(), re.DOTALL)))


def documented_manifest(kind: str) -> dict[str, Any]:
    """Return the only manifest of a kind."""
    (found,) = (one for one in documented_yaml() if one.get("kind") == kind)
    return found
