"""Entry points are imported and called with fixed seeds; errors name the field or the cause."""

from __future__ import annotations

import json
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError, UnavailableError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets import entry_points

MODULE = "entry_points_of_test"
_CODE = """
import os
import random
from os import system
import numpy as np

NUMBER = 3

def draws(context, count=2):
    return [(random.random(), np.random.random()) for _ in range(count)]

def constant(context):
    return [1, 2]

def seeded(context):
    return [context.seed]

def factory(context):
    return lambda: [context.input_pipeline_id]

def broken(context):
    raise OSError("the disk is gone")

def last_only(context):
    if context.input_pipeline_id == 3:
        raise ValueError("no files\\nin the folder")
    return [1]

def exits(context):
    raise SystemExit(3)

def interrupted(context):
    raise KeyboardInterrupt

def number(context):
    return 5

def blocks(context, file):
    import pathlib, time
    while not pathlib.Path(file).exists():
        time.sleep(0.01)
    return [1]

def by_index(context):
    from distributed_input import Indexed
    return Indexed([1, 2])

class Holder:
    nested = constant
"""


@pytest.fixture(autouse=True)
def _module(tmp_path: Path) -> Iterator[None]:
    """Write the module; `entry_of` names its folder."""
    (tmp_path / "entry_points_of_test.py").write_text(_CODE)
    (tmp_path / "needs_missing.py").write_text("import missing_package_of_test\n")
    (tmp_path / "raises.py").write_text("raise OSError('no such file')\n")
    (tmp_path / "parses.py").write_text(
        "import argparse\nparser = argparse.ArgumentParser()\n"
        "parser.add_argument('--x', required=True)\nparser.parse_args([])\n"
    )
    path = list(sys.path)
    sys.path.insert(0, str(tmp_path))
    yield
    sys.path[:] = path
    for name in ("entry_points_of_test", "needs_missing", "raises", "parses"):
        sys.modules.pop(name, None)


def call(function: str, split: int = 0, args: str = "", epoch: int = 0) -> tuple[list, bool]:
    """Return the elements of an entry point, and whether they vary by epoch."""
    entry = types_pb2.EntryPoint(target=f"entry_points_of_test:{function}", args_json=args)
    context = entry_points.split_context(types_pb2.Job(partitions=1), 7, epoch, split, 4)
    return list(entry_points.call(entry, context, seed=1)), context.varies


@pytest.mark.parametrize("function", ["constant", "by_index"])
def test_only_a_dataset_of_tensorflow_can_be_packed(function: str) -> None:
    entry = types_pb2.EntryPoint(target=f"{MODULE}:{function}", packing={"length": 4})
    context = entry_points.split_context(types_pb2.Job(partitions=1), 7, 0, 0, 4)
    with pytest.raises(SpecError, match=r"spec\.packing needs a tf\.data\.Dataset, .* returned"):
        entry_points.call(entry, context, seed=1)


def test_random_numbers_are_the_same_for_all_splits_of_an_epoch() -> None:
    assert call("draws", split=0) == call("draws", split=3)
    assert call("draws", epoch=0) != call("draws", epoch=1)


@pytest.mark.parametrize(
    ("function", "args", "varies"),
    [
        ("constant", "", False),
        ("seeded", "", True),
        ("draws", '{"count": 1}', True),
        ("draws", '{"count": 0}', False),
    ],
)
def test_use_of_the_seed_or_of_global_generators_marks_the_context(
    function: str, args: str, varies: bool
) -> None:
    assert call(function, args=args)[1] == varies


def test_a_nested_attribute_is_found_and_a_returned_function_is_called() -> None:
    assert call("Holder.nested")[0] == [1, 2]
    assert call("factory", split=2)[0] == [2]


@pytest.mark.parametrize(
    ("target", "error", "message"),
    [
        (
            "no_such_module_of_test:f",
            ConfigError,
            "entryPoint.function: no module 'no_such_module_of_test'",
        ),
        ("entry_points_of_test:f", ConfigError, "has no 'f'; it has draws, constant"),
        ("entry_points_of_test:NUMBER", ConfigError, "NUMBER is not a function"),
        ("entry_points_of_test:number", SpecError, "returned int"),
        ("entry_points_of_test:broken", DatasetFnError, "the disk is gone"),
        ("needs_missing:f", DatasetFnError, "imports missing_package_of_test"),
        ("raises:f", DatasetFnError, "no such file"),
        ("parses:f", DatasetFnError, r"module parses failed: SystemExit: 2\n.*parses.py"),
        (
            "entry_points_of_test:exits",
            DatasetFnError,
            r"entry point entry_points_of_test:exits failed: SystemExit: 3\n.*in exits",
        ),
    ],
)
def test_an_entry_point_that_cannot_be_called_is_reported(
    target: str, error: type[Exception], message: str
) -> None:
    context = entry_points.split_context(types_pb2.Job(partitions=1), 0, 0, 0, 1)
    with pytest.raises(error, match=message):
        entry_points.call(types_pb2.EntryPoint(target=target), context, 0)


def test_an_error_of_a_later_split_names_the_split() -> None:
    assert call("last_only", split=2)[0] == [1]
    with pytest.raises(DatasetFnError) as caught:
        call("last_only", split=3)
    first, second, place, *_ = str(caught.value).split("\n")
    name = "entry point entry_points_of_test:last_only"
    assert first == f"{name} failed: ValueError: no files (split 3 of 4)"
    assert second == "in the folder"
    assert "in last_only" in place


def test_an_error_of_the_first_split_names_no_split() -> None:
    """It is called first, so the error is rarely one of this split."""
    with pytest.raises(DatasetFnError, match=r"failed: OSError: the disk is gone\n"):
        call("broken")


def test_an_interrupt_is_no_error_of_the_function() -> None:
    with pytest.raises(KeyboardInterrupt):
        call("interrupted")


def test_a_call_that_hangs_fails_the_other_calls_in_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(entry_points, "_MAX_WAIT_SECONDS", 0.5)
    file = tmp_path / "continue"
    hangs = threading.Thread(target=call, args=("blocks", 3, json.dumps({"file": str(file)})))
    hangs.start()
    time.sleep(0.2)
    try:
        with pytest.raises(
            UnavailableError, match=r"entry_points_of_test:blocks for split 3 has been running for"
        ):
            call("constant")
    finally:
        file.touch()
        hangs.join(10)
    assert call("constant")[0] == [1, 2]


@pytest.fixture
def allowed(monkeypatch: pytest.MonkeyPatch) -> str:
    """Allow the module of this test, and return its name."""
    monkeypatch.setattr(entry_points, "_allowed", [])
    entry_points.allow_only([MODULE, "other"])
    return MODULE


def test_an_allowed_module_is_imported(allowed: str) -> None:
    assert call("constant")[0] == [1, 2]


@pytest.mark.parametrize(
    "target",
    [
        "os:system",
        f"{MODULE}_too:constant",
        f"{MODULE[:-1]}:constant",
        f"{MODULE}:os.system",
        f"{MODULE}:system",
        f"{MODULE}:constant.__class__",
        f"{MODULE}:constant.__globals__.get",
    ],
)
def test_functions_of_other_modules_are_refused(allowed: str, target: str) -> None:
    """A client with the input's token names the entry point, not the operator."""
    with pytest.raises(
        ConfigError, match=r"may not call functions of module .* use one of the mod"
    ):
        entry_points.load(types_pb2.EntryPoint(target=target))
    entry_points.allow_only([])
    if not target.startswith(allowed):
        return
    assert callable(entry_points.load(types_pb2.EntryPoint(target=target.replace("_too", ""))))


def test_a_client_cannot_name_the_folder_of_an_allowed_module(allowed: str, tmp_path: Path) -> None:
    folder = str(tmp_path / "folder")
    entry = types_pb2.EntryPoint(target=f"{allowed}:constant", path=folder)
    with pytest.raises(ConfigError, match=r"may not import from .*: remove the path"):
        entry_points.load(entry)
    assert folder not in sys.path
