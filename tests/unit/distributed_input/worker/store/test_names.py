"""A stored split is found by all that its rows depend on, if the job shows that."""

from __future__ import annotations

from typing import Any

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.graph.definition.canonical import FINGERPRINT_VERSION
from distributed_input.worker.store import names
from distributed_input.worker.store.names import is_storable, names_of
from tests.unit.distributed_input.worker.store.test_block_store import request_of


@pytest.mark.parametrize("version", ["ORDER_VERSION", "PIPELINE", "DIGEST_VERSION", "FORMAT"])
def test_other_versions_of_rows_have_other_names(
    version: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = names_of(request_of())
    monkeypatch.setattr(names, version, -1)
    assert not {*name} & {*names_of(request_of())}


def test_jobs_that_may_have_other_rows_have_other_names() -> None:
    request = request_of()
    request.job.definitions.append(1)
    request.job.definition_version = FINGERPRINT_VERSION
    request.job.entry_point.target = "data:rows"
    name = names_of(request)
    assert len({*name, *names_of(request_of())}) == 4
    same: dict[str, Any] = {"name": "other", "run": "r", "first_run": "r", "strict": True}
    same |= {"dataset_id": "e", "epochs": 3, "warnings": ["w"]}
    for field, value in same.items():
        alike = types_pb2.Job(**{field: value})
        other = worker_pb2.StreamRequest()
        other.CopyFrom(request)
        other.job.ClearField(field)
        other.job.MergeFrom(alike)
        assert names_of(other) == name, field
    request.job.entry_point.path = "/elsewhere"
    assert names_of(request) == name
    others: dict[str, Any] = {"num_splits": 3, "partitions": 2, "definitions": [2]}
    for field, value in others.items():
        other = worker_pb2.StreamRequest()
        other.CopyFrom(request)
        other.job.MergeFrom(types_pb2.Job(**{field: value}))
        assert names_of(other) != name, field
    request.job.entry_point.args_json = "{}"
    assert names_of(request) != name


def test_jobs_whose_rows_are_not_certain_are_not_stored() -> None:
    entry = types_pb2.EntryPoint(target="data:rows")
    defined: dict[str, Any] = {
        "entry_point": entry,
        "definitions": [1],
        "definition_version": FINGERPRINT_VERSION,
    }
    assert is_storable(types_pb2.Job(**defined))
    assert is_storable(types_pb2.Job(dataset_id="d"))
    uncertain: list[dict[str, Any]] = [
        *({"definitions": []}, {"definition_version": "0"}, {"varies": True}, {"infinite": True}),
        {"bad_records": types_pb2.BadRecords()},
    ]
    for other in uncertain:
        assert not is_storable(types_pb2.Job(**{**defined, **other})), other
