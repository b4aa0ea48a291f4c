"""The status command, with a real server and a fixed response."""

from __future__ import annotations

import json
import os

import pytest

from distributed_input import cli
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.runner import folders
from distributed_input.runner.commands import status as command
from distributed_input.runner.display.stats import StatusSample
from distributed_input.runtime import ready
from tests.unit.distributed_input.runner.samples import (
    FAILED,
    FAILURE,
    STALL,
    STALLED,
    consumer,
    with_job,
    worker,
)
from tests.unit.distributed_input.runtime.served import Echo, served

SOURCES = [
    types_pb2.SourceTotals(source="code", rows=30),
    types_pb2.SourceTotals(source="web", rows=70, wait_seconds=2.5),
]
RESPONSE = dispatcher_pb2.StatusResponse(
    workers=[dispatcher_pb2.WorkerInfo(worker_id="w", address="h:1", rows=9, busy_seconds=2.5)],
    jobs=[types_pb2.Job(name="train", global_batch_size=8)],
)


@pytest.fixture
def token_file(tmp_path):
    file = tmp_path / "token"
    file.write_text("secret")
    return str(file)


@pytest.fixture
def address(token_file):
    service = Echo(Status=lambda *_: RESPONSE)
    with served(service, Credentials.from_args(token_file, {})) as server:
        yield server.address


def test_the_status_command_prints_tables_or_json(address, token_file, called):
    flags = ["--dispatcher", address, "--token-file", token_file]
    assert called(["status", *flags]).out == (
        "no trainer is connected\n\nworker  streams  rows   busy\nh:1           0     9  2.5 s\n"
    )
    printed = json.loads(called(["status", *flags, "--json"]).out)
    assert (printed["input"], printed["jobs"]) == (None, ["train"])
    assert json.loads(called(["status", *flags, "-o", "json"]).out) == printed


def test_tables_of_trainers_and_workers():
    trainer = consumer(
        index=1,
        epoch=2,
        rows=100,
        batches=10,
        wait_seconds=1.0,
        wall_seconds=4.0,
        buffer_fill=0.5,
        waiting_for="a worker",
    )
    made = worker(rows=9, busy_seconds=2.5, stalled=[STALLED], failure=FAILURE)
    sample = StatusSample([trainer], [made])
    assert command.as_text(sample) == (
        "job/trainer  epoch  rows  batches  rows/s  stall  buffer  waiting for\n"
        "train/1          2   100       10    25.0    25%     50%     a worker\n"
        "\n"
        "worker  streams  rows   busy\n"
        "w:1           0     9  2.5 s\n"
        f"no progress: {STALL}, worker w:1\n"
        f"error: {FAILED}, worker w:1\n"
    )
    values = command.as_json(sample)
    assert values["consumers"][0]["wait_seconds"] == 1.0
    (one,) = values["workers"]
    assert (one["busy_seconds"], one["stalled"], one["failure"]) == (2.5, [STALL], FAILED)


def test_the_sources_of_a_mixture_are_a_table():
    sample = StatusSample([consumer(sources=SOURCES), consumer(index=1, sources=SOURCES)])
    assert command.as_text(sample).split("\n\n")[1] == (
        "job/source  rows  share  waited for\n"
        "train/code    60    30%       0.0 s\n"
        "train/web    140    70%       5.0 s"
    )
    assert command.as_json(sample)["sources"] == {
        "train": [
            {"source": "code", "rows": 60, "wait_seconds": 0.0},
            {"source": "web", "rows": 140, "wait_seconds": 5.0},
        ]
    }
    assert "source" not in command.as_text(with_job())
    assert command.as_json(with_job())["sources"] == {}


def test_replays_that_differ_are_shown():
    differing = consumer(index=1, replay_mismatches=2)
    text = command.as_text(StatusSample([consumer(), differing]))
    (line,) = [line for line in text.splitlines() if "replays" in line]
    assert line.startswith("train/1: replays that made other rows than before: 2. The dataset")
    assert command.as_json(StatusSample([differing]))["consumers"][0]["replay_mismatches"] == 2


def test_the_warnings_about_a_job_are_shown():
    status = with_job(read_amplification=8, warnings=["shard it", "no files"])
    text = command.as_text(status)
    assert "train: warning: shard it\ntrain: warning: no files\n" in text
    assert command.as_json(status)["read_amplification"] == {"train": 8}
    assert command.as_json(status)["warnings"] == {"train": ["shard it", "no files"]}
    assert "warning" not in command.as_text(with_job())


def test_skipped_records_are_counted_and_the_last_ones_are_shown():
    records = [types_pb2.SkippedRecord(index=index, step="parse") for index in range(7)]
    sample = StatusSample(skipped=records, skipped_records=9)
    lines = command.as_text(sample).splitlines()[-6:]
    count = "records skipped (spec.badRecords): 9; `distributed-input rows --skipped` lists them"
    assert lines[0] == count
    assert [line.split()[2] for line in lines[1:]] == ["2", "3", "4", "5", "6"]
    values = command.as_json(sample)
    assert (values["skipped_records"], len(values["skipped"])) == (9, 7)
    assert "skipped" not in command.as_text(StatusSample())


def test_rows_that_are_whole_elements_are_named():
    jobs = [*with_job().jobs, *with_job(name="eval", global_batch_size=0).jobs]
    status = StatusSample(jobs=jobs)
    assert "eval: rows are whole elements of the dataset" in command.as_text(status)
    assert "train: rows are" not in command.as_text(status)
    assert command.as_json(status)["whole_elements"] == ["eval"]


def test_the_memory_of_open_splits_is_shown():
    jobs = [*with_job(split_bytes=5 << 20).jobs, *with_job(name="small", split_bytes=9).jobs]
    status = StatusSample(jobs=jobs)
    text = command.as_text(status)
    assert "train: the shuffle buffers of an open split hold about 5 MiB\n" in text
    assert "small" not in text
    assert command.as_json(status)["split_bytes"] == {"train": 5 << 20, "small": 9}


def test_the_runs_of_this_machine_are_found(address, tmp_path, monkeypatch, capsys, called):
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert f"below {tmp_path / 'distributed-input'}: start" in called(["status"], 2).err
    with folders.create(None, os.environ) as run:
        run.tokens.mkdir()
        assert cli.main(["status"]) == 2  # it has no dispatcher yet
        capsys.readouterr()
        for name in ("eval", "train"):
            (run.tokens / name).write_text("secret")
            ready.write(str(run.ready(f"{name}-dispatcher")), address, None)
        assert cli.main(["status", "-o", "json"]) == 0
        printed = [json.loads(line)["input"] for line in capsys.readouterr().out.splitlines()]
        assert printed == ["eval", "train"]
        assert cli.main(["status"]) == 0
        assert "h:1           0     9  2.5 s\n" in capsys.readouterr().out.split("train (pid ")[1]


@pytest.mark.parametrize(
    ("flags", "status", "message"),
    [
        (["--token-file", "t"], 2, "--token-file: set --dispatcher too"),
        (["-n", "team"], 2, "--namespace: set NAME too"),
        (["train", "--dispatcher", "a:1"], 2, "NAME and --dispatcher exclude each other"),
        (["--dispatcher", "nowhere"], 2, "--dispatcher"),
        (
            ["--dispatcher", "127.0.0.1:1", "--timeout", "0.3"],
            1,
            "dispatcher at 127.0.0.1:1 did not respond within 0.3 s. Check",
        ),
        (["--dispatcher", "127.0.0.1:1", "--token-file", "/none"], 2, "token file"),
    ],
)
def test_the_status_command_reports_failures(flags, status, message, capsys):
    assert cli.main(["status", *flags]) == status
    assert message in capsys.readouterr().err


def test_a_wrong_token_is_reported(address, tmp_path, capsys):
    (tmp_path / "other").write_text("wrong")
    assert (
        cli.main(["status", "--dispatcher", address, "--token-file", str(tmp_path / "other")]) == 1
    )
    assert "token" in capsys.readouterr().err
