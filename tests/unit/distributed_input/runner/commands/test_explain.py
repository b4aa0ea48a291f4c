"""`distributed-input explain`, with a real dispatcher's server."""

from __future__ import annotations

import contextlib
import itertools
import json
from collections.abc import Iterator

import pytest

from distributed_input import cli
from distributed_input.api.proto import dispatcher_pb2, types_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.runner import dispatchers, kubectl
from distributed_input.runner.commands import explain as command
from distributed_input.runner.display import status_client
from distributed_input.runner.display.diagnosis import Cause, Diagnosis
from distributed_input.runner.display.stats import HostCpus
from distributed_input.runner.display.status_client import StatusClient
from tests.unit.distributed_input.runtime.served import Echo, served

SECRET = {"DISTRIBUTED_INPUT_TOKEN": "secret"}


def response(
    n: int, skipped: int = 0, sources: tuple[str, ...] = ()
) -> dispatcher_pb2.StatusResponse:
    """Return the answer to call n, as if it came ten seconds after the one before."""
    trainer = dispatcher_pb2.ConsumerHeartbeatRequest(
        job="train", count=1, rows=1000 * n, batches=10 * n, wait_seconds=4 * n, wall_seconds=10 * n
    )
    for at, source in enumerate(sources):
        trainer.sources.add(source=source, rows=100 * n * (1 + at), wait_seconds=3 * n * at)
    worker = dispatcher_pb2.WorkerInfo(worker_id="w", rows=1000 * n, parallelism=2, capacity=2)
    worker.busy_seconds, worker.permit_seconds = 19 * n, 20 * n
    return dispatcher_pb2.StatusResponse(
        workers=[worker],
        consumers=[dispatcher_pb2.ConsumerInfo(last=trainer)],
        jobs=[types_pb2.Job(name="train", warnings=["each row is read 32 times"])],
        skipped_records=skipped,
    )


@pytest.fixture
def address(monkeypatch):
    monkeypatch.setenv("DISTRIBUTED_INPUT_TOKEN", "secret")
    calls = itertools.count(1)
    service = Echo(Status=lambda *_: response(next(calls)))
    with served(service, Credentials.from_args(None, SECRET)) as server:
        yield server.address


def test_a_trainer_gets_a_cause_and_a_next_step(address, called):
    flags = ["--dispatcher", address, "--seconds", "0.01"]
    assert called(["explain", *flags]).out == (
        "train/0: waits for input 40% of the time, reads 100 rows/s\n"
        "  cause: workers. 1 worker used 95% of 2 CPUs.\n"
        "  next:  Without waiting, 1 trainer would read 167 rows/s, and one worker makes 105 "
        "rows/s: use 2\n"
        "         workers with 2 CPUs each, or make dataset_fn cheaper.\n"
        "  warning: each row is read 32 times\n"
    )
    printed = json.loads(called(["explain", *flags, "-o", "json"]).out)
    assert printed["warnings"] == ["each row is read 32 times"]
    (found,) = printed["trainers"]
    assert (found["trainer"], found["cause"], found["waits"]) == ("train/0", "workers", 0.4)


def test_skipped_records_are_counted(monkeypatch, called):
    monkeypatch.setenv("DISTRIBUTED_INPUT_TOKEN", "secret")
    calls = itertools.count(1)
    service = Echo(Status=lambda *_: response(n := next(calls), skipped=n))
    with served(service, Credentials.from_args(None, SECRET)) as server:
        flags = ["--dispatcher", server.address, "--seconds", "0.01"]
        assert called(["explain", *flags]).out.endswith(
            "  skipped: 2 records (spec.badRecords): `distributed-input rows --skipped` lists "
            "them.\n"
        )
        printed = json.loads(called(["explain", *flags, "-o", "json"]).out)
        assert printed["skipped_records"] == 4


@pytest.mark.parametrize(
    ("sources", "text"),
    [
        (
            ("books", "code", "web"),
            "  sources: The rows that train read were 17% books, 33% code, 50% web. Its steps "
            "waited 9.0 s for\n           rows: 67% web, 33% code.\n",
        ),
        (("web",), "  sources: The rows that train read were 100% web.\n"),
        ((), ""),
    ],
)
def test_the_sources_of_a_mixture_have_their_rows_and_waits(monkeypatch, called, sources, text):
    monkeypatch.setenv("DISTRIBUTED_INPUT_TOKEN", "secret")
    calls = itertools.count(1)
    service = Echo(Status=lambda *_: response(next(calls), sources=sources))
    with served(service, Credentials.from_args(None, SECRET)) as server:
        flags = ["--dispatcher", server.address, "--seconds", "0.01"]
        printed = called(["explain", *flags]).out
        assert printed.endswith(f"{text}  warning: each row is read 32 times\n")
        assert ("sources" in printed) == bool(sources)
        found = json.loads(called(["explain", *flags, "-o", "json"]).out)["sources"]
    assert [one["source"] for one in found.get("train", [])] == list(sources)


def test_what_the_operator_reports_is_printed_too(address, monkeypatch, capsys, called):
    problem = "budgets grant 1 of the 2 workers"

    @contextlib.contextmanager
    def forwarded(*_: object) -> Iterator[kubectl.ClusterInput]:
        yield kubectl.ClusterInput(address, "secret", (problem,))

    monkeypatch.setattr(kubectl, "forwarded", forwarded)
    flags = ["digits", "--seconds", "0.01"]
    lines = called(["explain", *flags]).out.splitlines()
    assert lines[1].startswith("  cause: workers.")
    assert f"  cluster: {problem}" in lines
    found = json.loads(called(["explain", *flags, "-o", "json"]).out)
    assert (found["input"], found["problems"]) == ("digits", [problem])
    assert cli.main(["explain", "--dispatcher", address, "--seconds", "0.01", "-o", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["problems"] == []


def test_only_for_a_local_run_the_cpus_of_this_machine_count(address, monkeypatch, capsys, called):
    ticks = itertools.count(0, 100)
    monkeypatch.setattr(status_client, "host_cpus", lambda: HostCpus(now := next(ticks), now))

    def found(_: object) -> list[dispatchers.FoundDispatcher]:
        client = StatusClient(address, Credentials.from_args(None, SECRET), is_local=True)
        return [dispatchers.FoundDispatcher("digits", client, place="pid 7, /home")]

    monkeypatch.setattr(dispatchers, "local_runs", lambda *_: [None])
    monkeypatch.setattr(dispatchers, "_of_run", found)
    printed = called(["explain", "--seconds", "0.01"]).out
    assert "100% of this machine's CPUs are in use" in printed
    assert printed.startswith("train/0: waits")
    without = [Diagnosis("", Cause.TRAINER, "No trainer is connected.", "Start it.")]
    with monkeypatch.context() as patch:
        patch.setattr(command, "diagnose", lambda *_: without)
        assert cli.main(["explain", "--seconds", "0.01"]) == 0
    assert capsys.readouterr().out.startswith("digits (pid 7, /home):\n  cause: trainer.")
    assert "machine" not in called(["explain", "--dispatcher", address, "--seconds", "0.01"]).out


def test_a_diagnosis_without_a_trainer_is_text_too():
    one = Diagnosis("", Cause.TRAINER, "No trainer is connected.", "Start it.")
    assert command.as_text(one) == (
        "  cause: trainer. No trainer is connected.\n  next:  Start it.\n"
    )
    assert command.as_json(one)["trainer"] is None
