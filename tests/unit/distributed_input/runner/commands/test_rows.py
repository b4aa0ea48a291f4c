"""`distributed-input rows`, with fixed answers of a real server, and about a position."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.runner.processes import replay
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


@pytest.fixture(params=[False])
def is_mixture(request):
    """Return whether rows have a source."""
    return request.param


@pytest.fixture
def asked(monkeypatch, is_mixture):
    """Answer questions about a position. Return the list of them."""

    def split(at: int) -> dict[str, Any]:
        return {"source": "web" if is_mixture else None, "epoch": 1, "split": at}

    questions: list[dict[str, Any]] = []
    ranges = [
        {"step": 4, **split(2), "first_row": 7, "rows": 2, "verified": True},
        {"step": 5, **split(3), "first_row": 0, "rows": 1, "verified": False},
    ]
    values = [{"id": 1, "image": list(range(100))}, {"id": 2, "image": []}, {"id": 3, "image": []}]

    def ask(position: Path, file: Path, question: dict[str, Any]) -> dict[str, Any]:
        assert (str(position), str(file)) == ("at", "input.yaml")
        questions.append(question)
        if "find" in question:
            rows = [(4, 2, 8), (None, 3, 1)]
            return {"found": [{"step": s, **split(at), "row": row} for s, at, row in rows]}
        has_values = question["values"] and not question["file"]
        values_of = values if has_values else []
        return {"ranges": ranges, "values": values_of, "assumed_from": 5 if is_mixture else None}

    monkeypatch.setattr(replay, "ask", ask)
    return questions


FILES = ["--position", "at", "--input", "input.yaml"]
EQUAL = "2 rows compared with the digests in the position: equal\n"


def test_the_rows_of_steps_are_a_table(asked, called):
    assert called(["rows", *FILES, "--steps", "4-5", "--trainer", "1"]).out == (
        "step  split  first row  last row\n4         2          7         8\n"
        "5         3          0         0\n" + EQUAL
    )
    assert asked == [{"steps": [4, 5], "trainer": 1, "values": False, "file": None}]
    printed = json.loads(called(["rows", *FILES, "--steps", "4", "-o", "json"]).out)
    assert printed["ranges"][1]["split"] == 3
    assert asked[1]["steps"] == [4, 4]


def test_replayed_rows_are_printed_with_their_values(asked, called):
    lines = called(["rows", *FILES, "--steps", "4-5", "--replay"]).out.splitlines()
    assert asked[0]["values"] is True
    assert lines[:2] == ["step 4: split 2, row 7", "  id: 1"]
    assert lines[2].startswith("  image: [0, 1, 2")
    assert len(lines[2]) == 100
    assert lines[3:5] == ["step 4: split 2, row 8", "  id: 2"]
    assert lines[6] == "step 5: split 3, row 0"


def test_replayed_rows_are_saved(asked, called, tmp_path):
    file = tmp_path / "rows.npz"
    assert called(["rows", *FILES, "--steps", "4-5", "--save", str(file)]).out.endswith(EQUAL)
    assert asked == [{"steps": [4, 5], "trainer": None, "values": True, "file": str(file)}]


@pytest.mark.parametrize(
    ("text", "question"),
    [("name=a=b", ["name", "a=b"]), ("17", ["", "17"]), ("x/y=", ["x/y", ""])],
)
def test_the_steps_of_a_value_are_a_table(asked, called, text, question):
    assert called(["rows", *FILES, "--find", text]).out == (
        "step  split  row\n4         2    8\nnone      3    1\n"
    )
    assert asked == [{"find": question}]


@pytest.mark.parametrize("is_mixture", [True], indirect=True)
def test_rows_of_a_mixture_have_their_source_and_its_epoch(asked, called):
    assert called(["rows", *FILES, "--steps", "4-5"]).out == (
        "step  source  epoch  split  first row  last row\n"
        "4     web         1      2          7         8\n"
        "5     web         1      3          0         0\n"
        + EQUAL
        + (
            "steps from 5 on: if the weights of the mixture do not change after the position was "
            "saved\n"
        )
    )
    lines = called(["rows", *FILES, "--steps", "4", "--replay"]).out.splitlines()
    assert lines[0] == "step 4: source web, epoch 1, split 2, row 7"
    assert called(["rows", *FILES, "--find", "x=1"]).out == (
        "step  source  epoch  split  row\n4     web         1      2    8\n"
        "none  web         1      3    1\n"
    )


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        ([], "set --skipped, or --position, --input, and --steps or --find"),
        ([*FILES], "set --skipped, or --position"),
        ([*FILES, "--steps", "1", "--find", "a=1"], "set --skipped, or --position"),
        (["--steps", "1", "--input", "input.yaml"], "set --skipped, or --position"),
        ([*FILES, "--steps", "5-4"], "--steps 5-4: set a step such as 137"),
        ([*FILES, "--steps", "-1"], "--steps -1: set a step such as 137"),
        ([*FILES, "--skipped"], "exclude each other"),
        (["--skipped", "--trainer", "0"], "exclude each other"),
        (["digits", *FILES, "--steps", "1"], "need --skipped"),
        ([*FILES, "--find", "a=1", "--replay"], "--find: remove --replay, --save and --trainer"),
    ],
)
def test_flags_that_do_not_fit_are_errors(asked, called, flags, message):
    assert message in called(["rows", *flags], 2).err
    assert asked == []
