"""Check the Python code in the documentation."""

from __future__ import annotations

import ast
from importlib.util import find_spec

import distributed_input


def problems(text: str) -> list[str]:
    """Return what is wrong with a block: its syntax, and names that the package does not have."""
    try:
        tree = ast.parse(text)
    except SyntaxError as error:
        return [f"line {error.lineno}: {error.msg}"]
    return [
        f"distributed_input has no {node.attr}"
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "distributed_input"
        and node.attr not in dir(distributed_input)
        and not find_spec(f"distributed_input.{node.attr}")  # its framework may not be installed
    ]
