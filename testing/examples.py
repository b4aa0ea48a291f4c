"""The examples' environment; see the group `examples` in pyproject.toml."""

from __future__ import annotations

from pathlib import Path

PYTHON = str(Path(__file__).parents[1] / ".venv-examples" / "bin" / "python")
"""Its Python interpreter. `make setup` creates the environment."""
