"""The mutants of the sources are changes that compile, and the equivalent ones still exist."""

from __future__ import annotations

import ast
import threading
from pathlib import Path

import pytest

from distributed_input.sidecar.streams.stream_retry import StreamRetry
from testing.mutation import forks, mutants
from testing.mutation.mutants import SOURCE, Mutant, apply, functions_of, mutants_of
from testing.mutation.sources import EQUIVALENT, MODULES

RETRY = "sidecar/streams/stream_retry.py"
CODE = '''
def f(a, b):
    """Return something."""
    _log.info("begins", a=1)
    assert a, "never"
    if a < b and not b:
        raise ValueError(f"{a + 1}")
    for one in b:
        break
    g(a)
    return a - b
'''


def test_each_kind_of_change_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "SOURCE", tmp_path)
    (tmp_path / "module.py").write_text(CODE)
    assert [(one.line, one.change) for one in mutants_of("module.py")] == [
        (6, "f: a < b and (not b) -> a < b or not b"),
        (6, "f: a < b -> a <= b"),
        (6, "f: not b -> b"),
        (7, "f: raise ValueError(f'{a + 1}') -> pass"),
        (9, "f: break -> continue"),
        (10, "f: g(a) -> pass"),
        (11, "f: return a - b -> return None"),
        (11, "f: a - b -> a + b"),
    ]


def test_an_applied_mutant_changes_the_imported_function() -> None:
    functions = functions_of(RETRY)
    (mutant,) = [
        one for one in mutants_of(RETRY) if "now - self" in one.change and "+" in one.change
    ]
    before = {one: one.__code__ for each in functions.values() for one in each}
    retry = StreamRetry(10)
    assert (retry.waited(100), retry.waited(103)) == (0, 3)
    try:
        apply(mutant, functions)
        assert retry.waited(103) == 203
    finally:
        for function, code in before.items():
            function.__code__ = code


def test_each_check_ends_with_its_result() -> None:
    killed, survived, hangs = mutants_of(RETRY)[:3]

    def is_killed(mutant: Mutant) -> bool:
        if mutant == hangs:
            forks.limit(0.05)
            threading.Event().wait(20)
        return mutant == killed

    found = dict(forks.check_all([killed, survived, hangs], is_killed, jobs=2))
    assert found == {killed: "killed", survived: "survived", hangs: "timed out"}


@pytest.mark.parametrize("module", MODULES)
def test_the_mutants_of_a_module_have_different_names(module: str) -> None:
    found = mutants_of(module)
    assert found
    assert len({one.change for one in found}) == len(found)
    ast.parse((SOURCE / module).read_text())


@pytest.mark.parametrize("module", EQUIVALENT)
def test_an_equivalent_mutant_exists_and_has_a_reason(module: str) -> None:
    assert module in MODULES
    assert set(EQUIVALENT[module]) <= {one.change for one in mutants_of(module)}
    assert all(EQUIVALENT[module].values())
