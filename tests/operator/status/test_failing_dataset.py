"""An error of the dataset: what users see, with a real dispatcher and a real worker."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.credentials import Credentials
from distributed_input.link.serving import open_channel
from distributed_input.link.stubs import Stub
from distributed_input_operator.kube.kinds import EVENT, INPUT
from distributed_input_operator.reconcile.plan import WATCHED_SECONDS
from testing.operator.dispatcher import run_dispatcher, token_of
from testing.operator.gitops import CURRENT, kstatus
from testing.operator.processes import eventually, manifest
from testing.operator.webhooks import free_port

CODE = """
def rows(context):
    raise KeyError("label")
"""
ENTRY_POINT = types_pb2.EntryPoint(target="failing:rows")


@contextmanager
def run_worker(dispatcher: int, folder: Path) -> Iterator[Stub]:
    """Run a worker that can import the module `failing`; yield its stub."""
    (folder / "failing.py").write_text(CODE)
    ready, token = folder / "worker.json", folder / "token"
    command = [sys.executable, "-m", "distributed_input.worker", "--listen", "127.0.0.1:0"]
    command += ["--dispatcher", f"127.0.0.1:{dispatcher}", "--token-file", str(token)]
    command += ["--ready-file", str(ready)]
    env = {**os.environ, "PYTHONPATH": str(folder)}
    with subprocess.Popen(command, env=env) as process:
        try:
            eventually(lambda: ready.exists() or process.poll() is not None)
            assert process.poll() is None
            address = json.loads(ready.read_text())["address"]
            with open_channel(address, Credentials.from_args(str(token), {})) as channel:
                yield Stub(channel, worker_pb2.DESCRIPTOR.services_by_name["Worker"])
        finally:
            process.terminate()


@pytest.mark.usefixtures("operator")
def test_an_error_of_the_dataset_is_a_condition_with_an_event(cluster: Any, tmp_path: Path) -> None:
    name, port = "failing", free_port()
    cluster.create(manifest(name, dispatcher={"port": port}))
    token = token_of(cluster, name)

    def condition() -> Any:
        cluster.run_pods(name)
        return cluster.condition(name, "DatasetFailing")

    with run_dispatcher(port, token, tmp_path, reading=False), run_worker(port, tmp_path) as worker:
        eventually(lambda: not condition() and cluster.condition(name, "Ready")["status"] == "True")
        job = types_pb2.Job(name="train", entry_point=ENTRY_POINT)
        with pytest.raises(grpc.RpcError, match="KeyError"):
            worker.Describe(worker_pb2.DescribeRequest(job=job), timeout=60)
        failed_at = time.monotonic()
        found = eventually(condition, WATCHED_SECONDS * 2)
        print(f"\ndataset_fn fails: {time.monotonic() - failed_at:.1f} s; {found}")
    assert (found["status"], found["reason"]) == ("True", "DatasetError")
    expected = (
        f"entry point failing:rows failed: KeyError: 'label' ({tmp_path}/failing.py:3), worker "
    )
    assert found["message"].startswith(f"{expected}127.0.0.1:"), found
    assert kstatus(cluster.get(INPUT.kind, name)) == CURRENT, "the workers serve"
    events = cluster.call("GET", EVENT.path(cluster.namespace))["items"]
    (event,) = [one for one in events if one["reason"] == "DatasetError"]
    assert event["message"] == found["message"]
    cluster.delete(INPUT.kind, name)
