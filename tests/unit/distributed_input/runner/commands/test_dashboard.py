"""The command `dashboard`: its flags, and the data that it serves."""

from __future__ import annotations

import pytest

from distributed_input.runner.commands import dashboard
from distributed_input.runner.dashboard.history import InputHistory
from distributed_input.runner.display.stats import ConsumerSample, StatusSample, WorkerSample


def test_the_view_is_what_the_other_commands_print() -> None:
    history = InputHistory("train")
    history.add(StatusSample([ConsumerSample("train", 0, "i")], [WorkerSample("w", "h:1")]), 1.0)
    found = dashboard.view(history)
    assert found["status"]["workers"][0]["address"] == "h:1"
    assert found["rates"]["consumers"][0]["job"] == "train"
    assert found["trainers"][0]["trainer"] == "train/0"


def test_the_share_of_the_cpus_that_a_worker_used() -> None:
    history = InputHistory("train")
    first, second = ((5.0, 10.0), (20.0, 30.0))
    for at, (busy, permits) in enumerate((first, second)):
        worker = WorkerSample("w", "h:1", parallelism=2, busy=busy, permit_seconds=permits)
        history.add(StatusSample([], [worker, WorkerSample("new", "h:2")]), float(at))
    assert dashboard.view(history)["busy"] == {"w": 0.75}


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["-n", "team"], "--namespace: set NAME too"),
        (["a", "--dispatcher", "h:1"], "exclude each other"),
    ],
)
def test_bad_flags_are_status_2(
    flags: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert dashboard.main([*flags, "--port", "0"]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("port", ["-1", "70000", "http"])
def test_a_port_is_a_number(port: str) -> None:
    with pytest.raises(SystemExit, match="2"):
        dashboard.main(["--port", port])
