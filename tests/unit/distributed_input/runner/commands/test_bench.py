"""The command `bench`, as far as it needs no TensorFlow: flags, bad input, the output."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest

from distributed_input import cli
from distributed_input.api.errors import TerminalError
from distributed_input.runner.benchmark.comparison import Comparison, Measured
from distributed_input.runner.commands import bench

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: NAME, namespace: team}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "code:dataset_fn", args: {folder: data}, source: {type: Path, path: .}}
  workers: {replicas: 2}
  epochs: 3
  tfDataService: {}
  encryption: None
"""
FROM_TRAINER = INPUT.partition("spec:")[0]


@pytest.fixture
def file(tmp_path, monkeypatch):
    """Return a file with one input. Its code is not imported."""
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    monkeypatch.setattr(bench, "validate", lambda _: [])
    path = tmp_path / "input.yaml"
    path.write_text(INPUT.replace("NAME", "train"))
    return path


def test_the_measured_resource_has_no_limits_that_end_it(file):
    found = bench._only(file)
    assert found["metadata"] == {"name": "train"}
    assert set(found["spec"]) == {"dataset", "workers", "encryption"}
    source = found["spec"]["dataset"]["entryPoint"]["source"]
    assert source == {"type": "Path", "path": str(file.parent)}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (INPUT.replace("NAME", "a") + "---\n" + INPUT.replace("NAME", "b"), "has 2 inputs"),
        (FROM_TRAINER.replace("NAME", "a"), "spec.dataset.entryPoint: is missing"),
        ("a: [", "input.yaml:"),
    ],
)
def test_an_unsuitable_file_is_status_2(file, text, message, called):
    file.write_text(text)
    out, err = called(["bench", str(file)], 2)
    assert out == ""
    assert message in err
    assert err.startswith("distributed-input bench: ")


def test_without_tensorflow_the_message_says_what_to_install(file, monkeypatch, called):
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: None if name == "tensorflow" else True
    )
    assert "pip install 'distributed-input[run]'" in called(["bench", str(file)], 2).err


@pytest.mark.parametrize("flags", [["--workers", "0"], ["--seconds", "0"], ["--workers"]])
def test_an_invalid_flag_is_status_2(file, flags):
    assert cli.main(["bench", str(file), *flags]) == 2


class Process:
    """Stands for a process that reads: it is ready, and has no measurements."""

    def __init__(self, *_: object) -> None:
        self.batched = True

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def answer(self, _event: str) -> dict[str, Any]:
        return {"batched": True}


def compared(monkeypatch: pytest.MonkeyPatch, fails_with: int, *flags: str) -> Comparison:
    """Compare with measurements that succeed at once, except with `fails_with` workers."""

    def through(_resource: object, _reader: object, number: int, *_: float) -> Measured:
        if number == fails_with:
            raise TerminalError("no rows within 120 s")
        return Measured(number, 9000, 1.0, 1.0, {})

    resource = {
        "metadata": {"name": "a"},
        "spec": {"dataset": {"type": "EntryPoint", "entryPoint": {"function": "a:b"}}},
    }
    monkeypatch.setattr(bench, "validate", lambda _: [])
    monkeypatch.setattr(bench, "_only", lambda _: resource)
    monkeypatch.setattr(bench, "busy_share", lambda _: 0.0)
    monkeypatch.setattr(bench, "TimedProcess", Process)
    monkeypatch.setattr(bench, "_measure", lambda *_: Measured(0, 1000, 1.0, 1.0, {}))
    monkeypatch.setattr(bench, "_through_workers", through)
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: True)
    options = bench.bench.make_context("bench", ["input.yaml", *flags]).params
    return bench._compare(
        options["file"], options["workers"], options["seconds"], options["timeout"]
    )


def test_what_was_measured_is_printed_if_another_number_of_workers_fails(monkeypatch):
    found = compared(monkeypatch, 2)
    assert [one.workers for one in found.through_workers] == [1]
    text = " ".join(bench.as_text(found).split())
    assert "note: 2 workers could not be measured: no rows within 120 s" in text
    with pytest.raises(TerminalError, match="no rows within 120 s"):
        compared(monkeypatch, 1)


def test_after_the_time_limit_no_further_number_is_measured(monkeypatch):
    found = compared(monkeypatch, 0, "--timeout", "1e-9")
    assert [one.workers for one in found.through_workers] == [1]
    (note,) = found.missing
    assert note.startswith("2 workers were not measured, because the others took 0 s")
