"""The examples' own environment: see pyproject.toml's group of that name."""

from __future__ import annotations

from pathlib import Path

PYTHON = str(Path(__file__).parents[1] / ".venv-examples" / "bin" / "python")
"""Its interpreter; `make setup` makes it."""
