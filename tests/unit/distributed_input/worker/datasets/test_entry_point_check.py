"""The check of an entry point that does not call it."""

from __future__ import annotations

import pytest

from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.worker.datasets.entry_point_check import check

CODE = """
def dataset_fn(context, folder, *, part="train"):
    raise AssertionError("was called")

def without_context():
    pass

def any_of(*args, **kwargs):
    pass

number = 1
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    path = tmp_path_factory.mktemp("code")
    (path / "checked_entry_points.py").write_text(CODE)
    (path / "broken_entry_points.py").write_text("import no_such_package_at_all\n")
    return str(path)


def test_a_function_that_takes_the_arguments_is_valid(folder: str) -> None:
    check("checked_entry_points:dataset_fn", {"folder": "data"}, folder)
    check("checked_entry_points:any_of", {"x": 1}, folder)
    check("builtins:dict", {}, None)


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        ("none_of_these:f", {}, r"^spec.dataset.entryPoint: no module 'none_of_these' in /"),
        ("checked_entry_points:f", {}, r"has no 'f'; it has dataset_fn, without_context, any_of"),
        ("checked_entry_points:number", {}, "is not a function"),
        ("checked_entry_points:dataset_fn", {}, r"args: .*\(context, folder.* missing .* 'folder'"),
        ("checked_entry_points:dataset_fn", {"folder": 1, "x": 1}, "unexpected .* 'x'. Change"),
        ("checked_entry_points:without_context", {}, "too many positional arguments"),
    ],
)
def test_an_error_names_what_does_not_fit(
    folder: str, target: str, arguments: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        check(target, arguments, folder)


def test_a_module_that_cannot_be_imported_is_an_error(folder: str) -> None:
    with pytest.raises(DatasetFnError, match="imports no_such_package_at_all, which is not"):
        check("broken_entry_points:f", {}, folder)
