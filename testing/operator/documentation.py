"""The manifests of the pages in docs/."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml

_DOCS = Path(__file__).parents[2] / "docs"


def documented_yaml(page: str = "scaling.md") -> list[Any]:
    """Return all YAML documents of a page."""
    text = (_DOCS / page).read_text()
    return list(map(yaml.safe_load, re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)))


def documented_manifest(kind: str, page: str = "scaling.md") -> dict[str, Any]:
    """Return the only manifest of a kind."""
    (found,) = (one for one in documented_yaml(page) if one.get("kind") == kind)
    return found
