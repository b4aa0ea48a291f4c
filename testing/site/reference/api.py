"""The page about the Python API, from signatures and docstrings. It imports no TensorFlow."""

from __future__ import annotations

import ast
import importlib
import inspect
import re
from collections.abc import Iterator
from pathlib import Path

import distributed_input
from testing.site.reference.markdown import fenced

_FRAMEWORKS = ("keras", "transformers")
"""Modules that import a framework: only their sources are read."""
_SECTION = re.compile(r"^(Args|Returns|Raises|Attributes|Yields):$")
_Function = (ast.FunctionDef, ast.AsyncFunctionDef)


def page() -> str:
    """Return the page."""
    text = "# Python API\n\nThe names that `distributed_input` exports.\n\n"
    for name in distributed_input.__all__:
        node = _node(name)
        text += _documented(node, f"distributed_input.{name}", "##")
    for framework in _FRAMEWORKS:
        module = Path(distributed_input.__file__).with_name(f"{framework}.py")
        text += f"## distributed_input.{framework}\n\n"
        for node in ast.parse(module.read_text()).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                text += _documented(node, f"distributed_input.{framework}.{node.name}", "###")
    return text


def _node(name: str) -> ast.stmt:
    """Return the definition of an exported name."""
    value = getattr(distributed_input, name)
    module = importlib.import_module(value.__module__)
    tree = ast.parse(Path(str(module.__file__)).read_text())
    (found,) = (one for one in tree.body if getattr(one, "name", None) == value.__name__)
    return found


def _documented(node: ast.stmt, name: str, heading: str) -> str:
    assert isinstance(node, (ast.ClassDef, *_Function))
    text = f"{heading} {name.rpartition('.')[2]}\n\n"
    if isinstance(node, ast.ClassDef):
        bases = [ast.unparse(one) for one in node.bases]
        text += fenced(f"class {name}({', '.join(bases)})", "python")
    else:
        text += fenced(_signature(node, name), "python")
    text += docstring(ast.get_docstring(node) or "")
    if isinstance(node, ast.ClassDef):
        for one in _members(node):
            text += _member(one)
    return text


def _members(node: ast.ClassDef) -> Iterator[ast.FunctionDef]:
    for one in node.body:
        if not isinstance(one, ast.FunctionDef) or one.name.startswith("_"):
            continue
        if ast.get_docstring(one):
            yield one


def _member(node: ast.FunctionDef) -> str:
    decorators = [ast.unparse(one) for one in node.decorator_list]
    if "property" in decorators:
        returned = ast.unparse(node.returns) if node.returns else "Any"
        head = f"**{node.name}**: `{returned}`\n\n"
    else:
        head = f"**{node.name}**\n\n" + fenced(_signature(node, node.name), "python")
    return head + docstring(ast.get_docstring(node) or "")


def _signature(node: ast.FunctionDef | ast.AsyncFunctionDef, name: str) -> str:
    arguments = ast.unparse(node.args)
    arguments = re.sub(r"^self(, )?", "", arguments)
    returned = f" -> {ast.unparse(node.returns)}" if node.returns else ""
    return f"{name}({arguments}){returned}"


def docstring(text: str) -> str:
    """Return a docstring as Markdown: its sections become lists."""
    lines: list[str] = []
    section = False
    for line in inspect.cleandoc(text).splitlines():
        if _SECTION.match(line):
            lines += ["", f"*{line}*", ""]
            section = True
        elif section and line.startswith("    ") and not line.startswith("     "):
            name, colon, rest = line.strip().partition(": ")
            lines.append(f"- `{name}`: {rest}" if colon else f"- {line.strip()}")
        elif section and line.strip():
            lines.append(f"  {line.strip()}")
        else:
            section = section and not line.strip()
            lines.append(line)
    return "\n".join(lines).strip() + "\n\n" if text else ""
