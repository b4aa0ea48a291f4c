"""`distributed-input rows`, with a real server and fixed responses."""

from __future__ import annotations

import json

import pytest

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from tests.unit.distributed_input.runtime.served import Echo, served

SECRET = {"DISTRIBUTED_INPUT_TOKEN": "secret"}
RECORDS = [
    types_pb2.SkippedRecord(
        dataset="lines:rows (web)", epoch=1, split=12, step="parse", index=33, file="/data/a.jsonl",
        record="{", error="JSONDecodeError: no name",
    ),
    types_pb2.SkippedRecord(
        dataset="lines:rows (code)", split=-1, step="TFRecord", index=7, error="corrupted",
    ),
]  # fmt: skip


@pytest.fixture
def dispatcher(monkeypatch):
    """Start a dispatcher with some skipped records. Yield it, and the flags that select it."""
    monkeypatch.setenv("DISTRIBUTED_INPUT_TOKEN", "secret")
    known = dispatcher_pb2.StatusResponse(skipped=RECORDS, skipped_records=2)

    def status(request: dispatcher_pb2.StatusRequest, _: object) -> dispatcher_pb2.StatusResponse:
        assert request.max_skipped == 1000
        return known

    with served(Echo(Status=status), Credentials.from_args(None, SECRET)) as server:
        yield known, ["--dispatcher", server.address]


def test_skipped_records_are_a_table(dispatcher, called):
    assert called(["rows", "--skipped", *dispatcher[1]]).out == (
        "dataset            epoch  split  record  step      file           error\n"
        "lines:rows (web)       1     12      33  parse     /data/a.jsonl  "
        "JSONDecodeError: no name\n"
        "lines:rows (code)      0    all       7  TFRecord  -              corrupted\n"
    )


def test_skipped_records_are_json(dispatcher, called):
    printed = json.loads(called(["rows", "--skipped", *dispatcher[1], "-o", "json"]).out)
    assert (printed["input"], printed["skipped_records"]) == (None, 2)
    assert [one["file"] for one in printed["skipped"]] == ["/data/a.jsonl", None]
    assert printed["skipped"][0]["error"] == "JSONDecodeError: no name"


def test_the_number_of_records_that_are_not_listed_is_printed(dispatcher, called):
    known, flags = dispatcher
    known.skipped_records = 5
    assert called(["rows", "--skipped", *flags]).out.endswith("\n3 earlier ones are not listed\n")


def test_no_record_was_left_out(dispatcher, called):
    known, flags = dispatcher
    known.Clear()
    assert called(["rows", "--skipped", *flags]).out == "no record was left out\n"


def test_a_flag_says_what_to_list(called):
    assert called(["rows"], 2).err == "distributed-input rows: set --skipped\n"
