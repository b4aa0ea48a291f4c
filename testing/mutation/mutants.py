"""The mutants of a module: small changes of its functions, made on the syntax tree.

A mutant is applied to the imported module: the function gets the code of the changed source. So
hundreds of forks of one process, which has imported everything, can each have another mutant.
"""

from __future__ import annotations

import ast
import copy
import gc
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "sidecar/src/distributed_input"
_OPTIMIZED = 1  # flag of the code of functions, which the code of classes does not have

_COMPARISONS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Lt: ast.LtE,
    ast.LtE: ast.Lt,
    ast.Gt: ast.GtE,
    ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq,
    ast.NotEq: ast.Eq,
    ast.Is: ast.IsNot,
    ast.IsNot: ast.Is,
    ast.In: ast.NotIn,
    ast.NotIn: ast.In,
}
_OPERATORS: dict[type[ast.operator], type[ast.operator]] = {ast.Add: ast.Sub, ast.Sub: ast.Add}
_NOT_NEGATED = (ast.Compare, ast.BoolOp, ast.UnaryOp, ast.Constant)  # have mutants of their own
_DELETED = (ast.Assign, ast.AugAssign, ast.Raise)
_SKIPPED_FIELDS = ("annotation", "returns", "decorator_list", "args", "exc")
_SHOWN = 60  # characters of a changed node


@dataclass(frozen=True)
class Mutant:
    """One change of a module.

    Attributes:
        module: path in the package `distributed_input`.
        number: index of the change in the module.
        line: line of the change.
        function: first line of the outermost function that contains it.
        change: name of the function and the change, unique in the module.
    """

    module: str
    number: int
    line: int
    function: int
    change: str


@dataclass(frozen=True)
class _Change:
    function: str
    first_line: int
    line: int
    text: str
    apply: Callable[[], None]


def mutants_of(module: str) -> list[Mutant]:
    """Return all mutants of a module, given by its path in the package."""
    seen: Counter[str] = Counter()
    found = []
    for number, change in enumerate(_changes(ast.parse((SOURCE / module).read_text()))):
        text = f"{change.function}: {change.text}"
        seen[text] += 1
        if seen[text] > 1:
            text += f" ({seen[text]})"
        found.append(Mutant(module, number, change.line, change.first_line, text))
    return found


def functions_of(module: str) -> dict[int, list[FunctionType]]:
    """Return the functions of an imported module, by their first line."""
    path = str(SOURCE / module)
    found: dict[int, list[FunctionType]] = {}
    for one in gc.get_objects():
        if isinstance(one, FunctionType) and one.__code__.co_filename == path:
            found.setdefault(one.__code__.co_firstlineno, []).append(one)
    return found


def apply(mutant: Mutant, functions: dict[int, list[FunctionType]]) -> None:
    """Give the functions of an imported module the code of a mutant. Raise ValueError if none."""
    path = SOURCE / mutant.module
    tree = ast.parse(path.read_text())
    list(_changes(tree))[mutant.number].apply()
    module = compile(ast.fix_missing_locations(tree), str(path), "exec", dont_inherit=True)
    (code,) = [one for one in _function_codes(module) if one.co_firstlineno == mutant.function]
    for function in functions[mutant.function]:
        if function.__code__.co_name == code.co_name:
            function.__code__ = code


def _function_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield the code of the functions of a module and of its classes, without nested functions."""
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            if constant.co_flags & _OPTIMIZED:
                if not constant.co_name.startswith("<"):
                    yield constant
            else:
                yield from _function_codes(constant)


def _changes(tree: ast.Module) -> Iterator[_Change]:
    yield from _changes_in(tree.body, "")


def _changes_in(body: list[ast.stmt], prefix: str) -> Iterator[_Change]:
    for statement in body:
        if isinstance(statement, ast.ClassDef):
            yield from _changes_in(statement.body, f"{prefix}{statement.name}.")
        elif isinstance(statement, ast.FunctionDef):
            first = min([statement.lineno, *(one.lineno for one in statement.decorator_list)])
            names = _names_bound_once(statement)
            for node, line, replace in _places(statement, statement):
                if _binds(node, names) or (
                    statement.name == "__init__" and isinstance(node, (ast.Assign, ast.AnnAssign))
                ):
                    continue  # without it, the first use of the name fails
                for new in _replacements(node):
                    text = f"{_shown(node)} -> {_shown(new)}"
                    if isinstance(node, ast.Constant):
                        text = f"{text} in {_shown(line)}"
                    yield _Change(
                        f"{prefix}{statement.name}", first, node.lineno, text, _bind(replace, new)
                    )


def _names_bound_once(function: ast.FunctionDef) -> set[str]:
    stored = Counter(
        node.id
        for node in ast.walk(function)
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
    )
    arguments = {one.arg for one in ast.walk(function) if isinstance(one, ast.arg)}
    return {name for name, count in stored.items() if count == 1} - arguments


def _binds(node: ast.AST, names: set[str]) -> bool:
    """Return whether a statement only binds names that nothing else binds."""
    if not isinstance(node, (ast.Assign, ast.AnnAssign)):
        return False
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    bound = [one for target in targets for one in getattr(target, "elts", [target])]
    return all(isinstance(one, ast.Name) and one.id in names for one in bound)


def _bind(replace: Callable[[ast.AST], None], new: ast.AST) -> Callable[[], None]:
    return lambda: replace(new)


def _shown(node: ast.AST) -> str:
    text = " ".join(ast.unparse(node).split())
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"


def _places(
    parent: ast.AST, statement: ast.AST
) -> Iterator[tuple[Any, ast.AST, Callable[[ast.AST], None]]]:
    """Yield each node that may change, its statement, and a function that replaces it."""
    for field, value in ast.iter_fields(parent):
        if field in _SKIPPED_FIELDS and not isinstance(parent, ast.Call):
            continue
        for index, node in enumerate(value if isinstance(value, list) else [value]):
            if not isinstance(node, ast.AST) or _is_skipped(node):
                continue
            if isinstance(parent, ast.While) and isinstance(node, ast.Constant):
                continue
            inner = node if isinstance(node, ast.stmt) else statement
            if isinstance(node, (ast.expr, ast.stmt)):
                place = index if isinstance(value, list) else None
                yield node, inner, _setter(parent, field, place)
            yield from _places(node, inner)


def _setter(parent: ast.AST, field: str, index: int | None) -> Callable[[ast.AST], None]:
    def replace(new: ast.AST) -> None:
        if index is None:
            setattr(parent, field, new)
        else:
            getattr(parent, field)[index] = new

    return replace


def _is_skipped(node: ast.AST) -> bool:
    """Return whether a node only documents: docstrings, assertions, logs, texts."""
    if isinstance(node, (ast.Assert, ast.JoinedStr)):
        return True
    if not isinstance(node, ast.Expr):
        return False
    call = node.value
    while isinstance(call, (ast.Call, ast.Attribute)):
        call = call.func if isinstance(call, ast.Call) else call.value
    return isinstance(call, ast.Constant) or (isinstance(call, ast.Name) and call.id == "_log")


def _replacements(node: Any) -> Iterator[ast.AST]:
    """Yield what may replace a node."""
    if isinstance(node, _DELETED) or (
        isinstance(node, (ast.Expr, ast.AnnAssign)) and not isinstance(node.value, ast.Yield | None)
    ):
        yield ast.copy_location(ast.Pass(), node)
    elif isinstance(node, ast.Return):
        if node.value is None:
            yield ast.copy_location(ast.Pass(), node)
        elif not isinstance(node.value, ast.Constant) or type(node.value.value) is str:
            yield ast.copy_location(ast.Return(ast.Constant(None)), node)
    elif isinstance(node, (ast.Break, ast.Continue)):
        new = ast.Continue() if isinstance(node, ast.Break) else ast.Break()
        yield ast.copy_location(new, node)
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield _with(node, value=not node.value)
        elif isinstance(node.value, int):
            yield _with(node, value=node.value + 1)
            yield _with(node, value=node.value - 1)
    yield from _operator_replacements(node)
    if isinstance(node, (ast.If, ast.While, ast.IfExp)) and not isinstance(node.test, _NOT_NEGATED):
        yield _with(node, test=ast.UnaryOp(ast.Not(), node.test))


def _operator_replacements(node: Any) -> Iterator[ast.AST]:
    if isinstance(node, ast.Compare):
        for index, operator in enumerate(node.ops):
            operators = list(node.ops)
            operators[index] = _COMPARISONS[type(operator)]()
            yield _with(node, ops=operators)
    elif isinstance(node, ast.BoolOp):
        yield _with(node, op=ast.Or() if isinstance(node.op, ast.And) else ast.And())
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
        yield node.operand
    elif isinstance(node, (ast.BinOp, ast.AugAssign)) and type(node.op) in _OPERATORS:
        yield _with(node, op=_OPERATORS[type(node.op)]())


def _with(node: ast.AST, **fields: Any) -> ast.AST:
    new = copy.copy(node)
    for name, value in fields.items():
        setattr(new, name, value)
    return new
