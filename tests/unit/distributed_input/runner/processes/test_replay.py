"""Questions about a position, to a process like a worker."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.errors import ConfigError, TerminalError
from distributed_input.api.proto import trainer_pb2
from distributed_input.runner.processes import replay

INPUT = """
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  seed: 7
  dataset: {type: EntryPoint, entryPoint: {function: "rows:augmented"}}
"""


@pytest.fixture
def files(tmp_path: Path) -> tuple[Path, Path]:
    """Return a position of the job `train/eval`, and the input `train`."""
    position, file = tmp_path / "position", tmp_path / "input.yaml"
    position.write_bytes(trainer_pb2.Position(job="train/eval", step=3).SerializeToString())
    file.write_text(INPUT)
    return position, file


def answering(
    monkeypatch: pytest.MonkeyPatch, status: int, out: Mapping[str, Any], errors: str = ""
) -> list[dict[str, Any]]:
    """Answer in place of the process. Return the list of questions."""
    asked: list[dict[str, Any]] = []

    def run(command: list[str], *, input: bytes, **_: Any) -> Any:  # noqa: A002 - its name
        assert command[1:] == ["-m", "distributed_input.worker.replay_process"]
        asked.append(json.loads(input))
        return subprocess.CompletedProcess(command, status, json.dumps(out), errors.encode())

    monkeypatch.setattr(subprocess, "run", run)
    return asked


def ask(files: tuple[Path, Path], question: Mapping[str, Any]) -> dict[str, Any]:
    position, file = files
    return replay.ask(position, file, question)


def test_the_process_gets_the_position_and_the_input(monkeypatch, files) -> None:
    asked = answering(monkeypatch, 0, {"ranges": []})
    assert ask(files, {"steps": [1, 2]}) == {"ranges": []}
    (given,) = asked
    assert base64.b64decode(given["position"]) == files[0].read_bytes()
    assert (given["steps"], given["config"]["seed"]) == ([1, 2], 7)


@pytest.mark.parametrize(("is_config", "kind"), [(True, ConfigError), (False, TerminalError)])
def test_errors_of_the_process_are_raised(monkeypatch, files, is_config, kind) -> None:
    answering(monkeypatch, 0, {"error": "no such component", "is_config": is_config})
    with pytest.raises(kind, match="no such component") as caught:
        ask(files, {})
    assert isinstance(caught.value, ConfigError) == is_config


def test_a_process_that_fails_is_an_error(monkeypatch, files) -> None:
    answering(monkeypatch, 3, {}, "first\nlast line\n")
    with pytest.raises(TerminalError, match=r"status 3: last line"):
        ask(files, {})


def test_files_that_cannot_be_used_are_errors(monkeypatch, files, tmp_path) -> None:
    position, file = files
    with pytest.raises(ConfigError, match=r"--position .*none: No such file"):
        replay.ask(tmp_path / "none", file, {})
    with pytest.raises(ConfigError, match=r"none\.yaml"):
        replay.ask(position, tmp_path / "none.yaml", {})
    file.write_text(INPUT.replace("name: train", "name: other"))
    with pytest.raises(ConfigError, match=r"position is of the input 'train', and the file has o"):
        replay.ask(position, file, {})
    for data in (b"\xff", b""):
        position.write_bytes(data)
        with pytest.raises(ConfigError, match=r"it is not what `position\(\)` returned"):
            replay.ask(position, file, {})
