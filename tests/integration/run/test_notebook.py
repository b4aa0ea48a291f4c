"""`distributed_input.local` in a real Jupyter kernel: cells, interrupts, and the kernel's end."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from distributed_input.runner import process_wrapper
from testing import examples
from testing.integration.run_supervision.harness import SECONDS, wait_readable
from testing.portability.shim import pidfd_open

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes in /proc")

ROWS, BEFORE_GATE = 64, 16
DATASET = f"""
import os
import time
import numpy as np
import tensorflow as tf

def dataset_fn(context, gate):
    def wait(row):
        time.sleep(0.01)  # a worker produces few of such rows before it sends them
        if row == {BEFORE_GATE}:
            open(gate).close()  # returns while another process has it open for writing
        return row

    rows = tf.data.Dataset.range({ROWS})
    rows = rows.map(lambda row: tf.ensure_shape(tf.numpy_function(wait, [row], tf.int64), []))
    return rows.batch(context.get_per_replica_batch_size(4))
"""
START = """
import distributed_input
run = distributed_input.local(RESOURCE, workers=1)
print(run.pid)
"""
READ = """
train = distributed_input.connect("train")
rows = []
for batch in train.numpy():
    rows += batch.tolist()
    print("rows", len(rows), flush=True)
"""
IN_ONE_CELL = """
import distributed_input
with distributed_input.local(RESOURCE, workers=1) as run:
    print(run.pid, flush=True)
    with distributed_input.connect("train") as train:
        for batch in train.numpy():
            print("rows", batch[-1] + 1, flush=True)
"""
REST = """
train.restore(train.position())
rows += [row for batch in train.numpy() for row in batch.tolist()]
print(rows == list(range(64)), sum(len(batch) for batch in train.numpy()), run.is_running)
"""


class Notebook:
    """A kernel, and the cells that run in it."""

    def __init__(self, folder: Path) -> None:
        from jupyter_client.manager import KernelManager

        self.folder = folder
        self.gate = folder / "gate"
        self._kernel = KernelManager(kernel_name="examples")
        (folder / "gated.py").write_text(DATASET)
        os.mkfifo(self.gate)
        self._kernel.start_kernel(cwd=str(folder), env={**os.environ, "TMPDIR": str(folder)})
        self._client = self._kernel.client()
        self._client.start_channels()
        self._client.wait_for_ready(timeout=SECONDS)
        entry = {
            "function": "gated:dataset_fn",
            "args": {"gate": str(self.gate)},
            "source": {"type": "Path", "path": "."},
        }
        dataset = {"type": "EntryPoint", "entryPoint": entry}
        spec = {"dataset": dataset, "partitions": 1, "numSplits": 1, "sidecar": {"buffer": "1Mi"}}
        resource = {
            "apiVersion": "distributed-input.dev/v1beta1",
            "kind": "DistributedInput",
            "metadata": {"name": "train"},
            "spec": spec,
        }
        self.run(f"RESOURCE = {resource!r}")

    @property
    def pid(self) -> int:
        """The process id of the kernel."""
        assert self._kernel.provisioner is not None
        return int(self._kernel.provisioner.pid)

    def start(self, code: str) -> str:
        """Send a cell; return the id of its request."""
        return str(self._client.execute(code))

    def output(self, request: str, until: str = "") -> tuple[str, str]:
        """Wait for the end of a cell, or until it prints `until`.

        Returns:
            What it printed, and the name of its exception: empty without one.
        """
        printed, error = "", ""
        deadline = time.monotonic() + 2 * SECONDS
        while not (until and until in printed):
            left = max(0.1, deadline - time.monotonic())
            message: dict[str, Any] = self._client.get_iopub_msg(timeout=left)
            if message["parent_header"].get("msg_id") != request:
                continue
            kind, content = message["msg_type"], message["content"]
            if kind == "stream" and content["name"] == "stdout":  # stderr has the progress
                printed += content["text"]
            elif kind == "error":
                error = content["ename"]
                printed += "\n".join(content["traceback"])
            elif kind == "status" and content["execution_state"] == "idle":
                assert not until, f"it has not printed {until!r}: {printed}"
                break
        return printed, error

    def run(self, code: str) -> str:
        """Run a cell that raises nothing; return what it printed."""
        printed, error = self.output(self.start(code))
        assert not error, printed
        return printed

    def interrupt(self) -> None:
        """Do what the button with the square does."""
        self._kernel.interrupt_kernel()

    def restart(self) -> None:
        self._kernel.restart_kernel()
        self._client.wait_for_ready(timeout=SECONDS)

    def shut_down(self) -> None:
        self._kernel.shutdown_kernel()

    def close(self) -> None:
        """Kill the kernel if it still runs."""
        self._client.stop_channels()
        if self._kernel.has_kernel:
            self._kernel.shutdown_kernel(now=True)
        self._kernel.cleanup_resources()


@pytest.fixture
def notebook(tmp_path, monkeypatch):
    pytest.importorskip("tensorflow")
    monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
    monkeypatch.setenv("JUPYTER_PLATFORM_DIRS", "1")
    for name in ("JUPYTER_RUNTIME_DIR", "JUPYTER_CONFIG_DIR", "IPYTHONDIR"):
        (tmp_path / name).mkdir()
        monkeypatch.setenv(name, str(tmp_path / name))
    # The kernel has the environment of the examples, because TensorFlow imports IPython.
    kernel = {
        "argv": [examples.PYTHON, "-m", "ipykernel_launcher", "-f", "{connection_file}"],
        "display_name": "examples",
        "language": "python",
    }
    (tmp_path / "kernels" / "examples").mkdir(parents=True)
    (tmp_path / "kernels" / "examples" / "kernel.json").write_text(json.dumps(kernel))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    created = Notebook(tmp_path)
    try:
        yield created
    finally:
        created.close()


def folders(notebook: Notebook) -> list[Path]:
    """Return the folders of the runs of a notebook."""
    names = [one.name for one in notebook.folder.glob("distributed-input-*/run-*")]
    shared = Path("/dev/shm").glob("distributed-input-*/run-*")
    own = list(notebook.folder.glob("distributed-input-*/run-*"))
    return own + [one for one in shared if one.name in names]


def processes(notebook: Notebook) -> dict[int, str]:
    """Return the live processes of the only run of a notebook, by process id."""
    (run,) = {one.name.removeprefix("run-") for one in folders(notebook)}
    return dict(process_wrapper.marked(process_wrapper.mark(run, "")))


@contextmanager
def leaves_nothing(notebook: Notebook, pid: int) -> Iterator[None]:
    """Require that the processes of the run `pid` end after the block, and its folders too."""
    left, found = folders(notebook), processes(notebook)
    assert {mark.partition(":")[2] for mark in found.values()} >= {"worker-0", "sidecar-0"}
    descriptors = [pidfd_open(each) for each in (pid, *found)]
    yield
    ended = [wait_readable(each) for each in descriptors]
    assert all(ended), found
    assert [one for one in left if one.exists()] == []
    assert list(notebook.folder.glob("distributed-input-*/input.yaml")) == []


@contextmanager
def opened(gate: Path) -> Iterator[None]:
    """Let rows pass the gate."""
    descriptor = os.open(gate, os.O_RDWR)
    try:
        yield
    finally:
        os.close(descriptor)


def read_to_the_gate(notebook: Notebook, cell: str) -> str:
    """Start a cell; wait until it waits for the row behind the gate. Return its request."""
    request = notebook.start(cell)
    notebook.output(request, until=f"rows {BEFORE_GATE}")
    return request


def test_an_interrupted_cell_leaves_the_run_usable(notebook):
    pid = int(notebook.run(START))
    before = processes(notebook)
    request = read_to_the_gate(notebook, READ)
    notebook.interrupt()
    assert notebook.output(request)[1] == "KeyboardInterrupt"
    assert processes(notebook) == before
    with opened(notebook.gate):
        assert notebook.run(REST).split() == ["True", str(ROWS), "True"]
    assert processes(notebook) == before
    with leaves_nothing(notebook, pid):
        notebook.shut_down()


def test_an_interrupted_block_in_one_cell_ends_its_run(notebook):
    request = notebook.start(IN_ONE_CELL)
    pid = int(notebook.output(request, until="\n")[0].split()[0])
    with leaves_nothing(notebook, pid):
        notebook.output(request, until=f"rows {BEFORE_GATE}")
        notebook.interrupt()
        assert notebook.output(request)[1] == "KeyboardInterrupt"
    assert notebook.run("print(1)") == "1\n"


@pytest.mark.parametrize("end", ["killed", "restarted"])
def test_a_kernel_that_ends_within_a_cell_leaves_nothing(notebook, end):
    pid = int(notebook.run(START))
    read_to_the_gate(notebook, READ)
    with leaves_nothing(notebook, pid):
        if end == "killed":
            os.kill(notebook.pid, signal.SIGKILL)
        else:
            notebook.restart()
