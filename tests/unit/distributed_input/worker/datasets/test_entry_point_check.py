"""The check of an entry point: its import, its parameters, and the dataset that it returns."""

from __future__ import annotations

import json
from typing import Any

import pytest

from distributed_input.api.config import CodeSource, DatasetConfig, InputConfig
from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.api.proto import types_pb2
from distributed_input.worker.datasets.entry_point_check import check_signature, results

CODE = """
import tensorflow as tf

def dataset_fn(context, folder, *, part="train"):
    raise AssertionError("was called")

def rows(context, batch=0, shard=True):
    data = tf.data.Dataset.range(2000)
    if shard:
        data = data.shard(context.num_input_pipelines, context.input_pipeline_id)
    return data.batch(context.get_per_replica_batch_size(batch)) if batch else data

def files(context, folder):
    return tf.data.Dataset.list_files(folder + "/*.tfrecord")

def lines(context, folder):
    return open(folder + "/lines.txt").readlines()

def mistyped(context):
    return tf.data.Dataset.rnage(8)

def no_elements(context):
    return []

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


def check(target: str, arguments: dict[str, object], path: str | None) -> None:
    args = json.dumps(arguments)
    check_signature(types_pb2.EntryPoint(target=target, args_json=args, path=path or ""))


def test_a_function_that_takes_the_arguments_is_valid(folder: str) -> None:
    check("checked_entry_points:dataset_fn", {"folder": "data"}, folder)
    check("checked_entry_points:any_of", {"x": 1}, folder)
    check("builtins:dict", {}, None)


@pytest.mark.parametrize(
    ("target", "arguments", "message"),
    [
        (
            "none_of_these:f",
            {},
            r"^spec.dataset.entryPoint.function: no module 'none_of_these' in /",
        ),
        ("checked_entry_points:f", {}, r"has no 'f'; it has dataset_fn, rows, files, lines,"),
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


def results_of(folder: str, function: str, **fields: Any) -> list[dict[str, Any]]:
    args = fields.pop("args", {})
    dataset = DatasetConfig(f"checked_entry_points:{function}", args, CodeSource(folder))
    return list(results("train", InputConfig(dataset, **fields)))


def test_the_dataset_determines_batch_size_and_partitions(folder: str) -> None:
    found = {"partitions": 8, "rows": 64, "parallel": False, "warnings": []}
    assert results_of(folder, "rows", args={"batch": 64}) == [{}, found]
    assert results_of(folder, "rows") == [{}, {**found, "rows": 0}]


def test_warnings_of_the_job_are_results(folder: str) -> None:
    _, found = results_of(folder, "rows", args={"shard": False})
    (warning,) = found["warnings"]
    assert "each row is read 32 times" in warning


@pytest.mark.parametrize(
    ("function", "fields", "field", "text"),
    [
        ("mistyped", {}, "spec.dataset.entryPoint.function", "has no attribute 'rnage'"),
        (
            "no_elements",
            {},
            "spec.dataset.entryPoint.function",
            "the entry point's first split has no",
        ),
        (
            "rows",
            {"args": {"batch": 60}, "partitions": 8},
            "spec.dataset.entryPoint.function",
            "8 part",
        ),
    ],
)
def test_a_dataset_that_no_trainer_can_read_is_a_problem(
    folder: str, function: str, fields: dict[str, Any], field: str, text: str
) -> None:
    imported, found = results_of(folder, function, **fields)
    assert (imported, found["field"]) == ({}, field)
    assert text in found["text"]


@pytest.mark.parametrize("function", ["files", "lines"])
def test_data_that_are_not_on_this_machine_are_no_problem(folder: str, function: str) -> None:
    imported, found = results_of(folder, function, args={"folder": "/no/such/folder"})
    assert imported == {}
    assert "/no/such/folder" in found["unknown"]
