"""Mutants that do not change what is delivered, by module and change, each with the reason."""

from __future__ import annotations

EQUIVALENT: dict[str, dict[str, str]] = {}
