"""Rows of steps, computed from a saved position in a process like a worker."""

from __future__ import annotations

import base64
import contextlib
import importlib.util
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from google.protobuf.message import DecodeError

from distributed_input.api.errors import ConfigError, TerminalError
from distributed_input.api.proto import trainer_pb2
from distributed_input.order.jobs import input_of
from distributed_input.runner import plan
from distributed_input.runner.processes.supervised_process import describe_exit
from distributed_input.runner.spec import load_resources

_PROCESS = "distributed_input.worker.replay_process"


def ask(position_file: Path, file: Path, question: Mapping[str, Any]) -> dict[str, Any]:
    """Return the answer of `worker.replay_process` to a question.

    Args:
        position_file: what `position()` returned.
        file: YAML with the input of the position.
        question: the fields besides the position and the input.

    Raises:
        ConfigError: a file cannot be used, or the question is invalid.
        TerminalError: the rows cannot be computed.
    """
    try:
        data = position_file.read_bytes()
    except OSError as error:
        raise ConfigError(f"--position {position_file}: {error.strerror}") from error
    config = _config_of(input_of(_job_of(data, position_file)), file)
    if importlib.util.find_spec("tensorflow") is None:
        raise ConfigError("TensorFlow is not installed: run `pip install 'distributed-input[run]'`")
    given = {**question, "position": base64.b64encode(data).decode(), "config": config}
    done = subprocess.run(
        [sys.executable, "-m", _PROCESS],
        input=json.dumps(given).encode(),
        env=plan.worker_env({"TF_CPP_MIN_LOG_LEVEL": "3", **os.environ}),
        capture_output=True,
        check=False,
    )
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it printed nothing"]
        raise TerminalError(f"the process {describe_exit(done.returncode)}: {lines[-1]}")
    answer: dict[str, Any] = json.loads(done.stdout)
    if "error" in answer:
        raise (ConfigError if answer["is_config"] else TerminalError)(answer["error"])
    return answer


def _job_of(data: bytes, file: Path) -> str:
    """Return the job of a saved position."""
    with contextlib.suppress(DecodeError):
        if job := trainer_pb2.Position.FromString(data).job:
            return job
    raise ConfigError(
        f"--position {file}: it is not what `position()` returned: the file is damaged, or "
        "something else has written it"
    )


def _config_of(name: str, file: Path) -> dict[str, Any]:
    """Return the configuration of the input `name` in a file, as JSON."""
    resources = load_resources(file, lambda _: ())
    from distributed_input.api.resource.input import input_config

    for one in resources:
        if one.metadata.name == name:
            return input_config(one).to_json()
    names = ", ".join(one.metadata.name for one in resources)
    raise ConfigError(f"{file}: the position is of the input {name!r}, and the file has {names}")
