"""`distributed-input run` on a terminal, and with real processes."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
from collections.abc import Callable
from pathlib import Path

import pytest

from distributed_input.worker.host.priority import LOW
from testing.integration.run_supervision.harness import (
    WITH_REAL_PARTS,
    Run,
    run_starter,
    wait_readable,
    wait_until,
    write_line,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="watches processes in /proc")

Start = Callable[..., Run]


@pytest.fixture
def start(tmp_path):
    yield from run_starter(tmp_path)


# On a terminal.


def test_a_terminal_shows_a_status_line_and_is_restored(start):
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    run = start(["sh", "-c", "test -t 1 && echo tty; read x"], terminal=slave, TERM="xterm")
    os.close(slave)
    screen = read_until(master, b"train: waiting for: ")
    write_line(run, "end")
    assert run.wait() == 0
    rest = read_until(master, None)
    os.close(master)
    assert b"tty\r\n" in screen
    assert b"\033[1;23r" in screen  # the last row does not scroll
    restored_at = rest.index(b"\033[r\033[24;1H\033[2K")
    assert b";23r" not in rest[restored_at:]
    assert b"the trainer ran for" in rest[restored_at:]


def read_until(descriptor: int, words: bytes | None) -> bytes:
    """Read a terminal up to `words`; None: to its end."""
    found = b""
    while words is None or words not in found:
        assert wait_readable(os.dup(descriptor)), found
        try:
            data = os.read(descriptor, 65536)
        except OSError:  # Linux: the last process with the terminal open has ended
            data = b""
        if not data:
            assert words is None, found
            break
        found += data
    return found


# With real processes.

REAL_INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "numbers_of:dataset_fn", source: {type: Path, path: .}}
  batching: {globalBatchSize: 8}
  workers: {replicas: 2}
  sidecar: {buffer: 1Mi}
"""
REAL_DATASET = """
import tensorflow as tf

def dataset_fn(ctx):
    return tf.data.Dataset.range(20000).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
"""
REAL_TRAINER = """
import distributed_input as di

seen = []
with di.connect("train", timeout=60) as train:
    for epoch in range(2):
        rows = []
        for batch in train.numpy():
            rows.extend(batch.tolist())
            if len(seen) == epoch == 0 and len(rows) == 8000:
                print("continue?", flush=True)
                input()
        assert sorted(rows) == list(range(20000)), len(rows)
        seen.append(rows)
    print("read", flush=True)
    input()
print("every row once in each of", len(seen), "epochs")
"""


def test_every_row_arrives_once_after_crashes(start, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "numbers_of.py").write_text(REAL_DATASET)
    run = start([sys.executable, "-c", REAL_TRAINER], file=REAL_INPUT, program=WITH_REAL_PARTS)
    run.out.wait_for(r"continue\?")
    own = os.getpriority(os.PRIO_PROCESS, 0)
    parts = ("worker-0", "worker-1", "sidecar-0")
    found = [os.getpriority(os.PRIO_PROCESS, run.pid(part)) for part in parts]
    assert found == [max(own, LOW), max(own, LOW), own]
    for part in ("worker-0", "dispatcher"):
        os.kill(run.pid(part), signal.SIGKILL)
        run.err.wait_for(rf"{part} was killed by SIGKILL .*restart 1")
    write_line(run, "yes")
    run.out.wait_for("read")
    reported = [0]

    def all_are_reported() -> bool:
        reported.append(rows_in_status(run))
        return reported[-1] >= 40000

    wait_until(all_are_reported, reported)
    write_line(run, "end")
    assert run.wait() == 0
    assert run.out.rest().endswith("every row once in each of 2 epochs")
    report = run.report()
    train = report["inputs"]["train"]
    assert train["rows"] >= reported[-1]  # may include rows of the next epoch, which are read ahead
    assert train["replay_mismatches"] == 0
    assert {n: p["restarts"] for n, p in report["processes"].items()} == {
        "dispatcher": 1,
        "worker-0": 1,
        "worker-1": 0,
        "sidecar-0": 0,
        "trainer-0": 0,
    }
    if os.path.exists("/proc/self/status"):  # else they are unknown
        assert all(p["peak_rss_bytes"] > 1 << 20 for p in report["processes"].values())


RANK_TRAINER = """
import os
import distributed_input as di

with di.connect("train", timeout=60) as train:
    assert train.consumer == (int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
    rows = [int(row) for batch in train.numpy() for row in batch]
    print("rows", *rows, flush=True)
"""


def test_two_trainers_with_two_ranks_read_every_row_once(start, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "numbers_of.py").write_text(REAL_DATASET.replace("20000", "400"))
    run = start(
        [sys.executable, "-c", RANK_TRAINER],
        *("--trainers", "2", "--ranks-per-trainer", "2", "--workers", "1"),
        file=REAL_INPUT,
        program=WITH_REAL_PARTS,
    )
    run.err.wait_for("starting the trainer")
    assert run.wait() == 0
    lines = run.out.rest().splitlines()
    read = [list(map(int, line.partition("rows ")[2].split())) for line in lines]
    assert len(read) == 4
    assert all(read)
    assert sorted(row for rows in read for row in rows) == list(range(400))
    report = run.report()
    assert {name for name in report["processes"] if name.startswith(("trainer", "sidecar"))} == {
        *(f"sidecar-{n}" for n in range(2)),
        *(f"trainer-{n}" for n in range(4)),
    }
    assert report["inputs"]["train"]["rows"] == 400


COUNTING_TRAINER = """
import distributed_input as di

rows = 0
with di.connect("train", timeout=60) as train:
    for number, batch in enumerate(train.numpy()):
        rows += len(batch)
        if number in (700, 1100):
            print("continue?", flush=True)
            input()
print(rows)
"""


def test_the_report_counts_all_rows_after_the_sidecar_crashed_twice(start, tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "numbers_of.py").write_text(REAL_DATASET)
    command = [sys.executable, "-c", COUNTING_TRAINER]
    run = start(command, file=REAL_INPUT, program=WITH_REAL_PARTS)
    for restart in (1, 2):
        run.out.wait_for(r"continue\?")
        os.kill(run.pid("sidecar-0"), signal.SIGKILL)
        run.err.wait_for(rf"sidecar-0 was killed by SIGKILL .*restart {restart}")
        write_line(run, "yes")
    assert run.wait() == 0
    assert run.out.rest().endswith("20000")
    report = run.report()
    assert report["processes"]["sidecar-0"]["restarts"] == 2
    train = report["inputs"]["train"]
    assert (train["rows"], train["batches"], train["epochs"]) == (20000, 2500, 1)


CRASHES = {
    "row": (
        "import os, signal, threading\n"
        "def dataset_fn(context):\n"
        "    for i in range(context.input_pipeline_id, 64, context.num_input_pipelines):\n"
        "        if i == 13:\n"
        "            os.kill(os.getpid(), signal.SIGKILL)\n"
        "            threading.Event().wait()\n"
        "        yield i\n",
        3,
        r"row 1 of split 5 of dataset numbers_of:dataset_fn ended a worker in epoch 0: SIGKILL.* "
        r"It has ended [3-5] workers\. Raise the memory limit in spec.workers.template",
    ),
    "import": (
        "import ctypes\ndef dataset_fn(context):\n    yield 1\nctypes.string_at(0)\n",
        2,
        r"importing the module of dataset numbers_of:dataset_fn ended a worker: Segmentation "
        r"fault, in <module> \(.*/numbers_of.py:4\)\. It has ended [23] workers",
    ),
}


@pytest.mark.parametrize("where", CRASHES)
def test_what_ends_workers_again_and_again_is_an_error_that_names_it(start, tmp_path, where):
    pytest.importorskip("tensorflow")
    code, workers, error = CRASHES[where]
    (tmp_path / "numbers_of.py").write_text(code)
    file = REAL_INPUT.replace("spec:", "spec:\n  numSplits: 8")
    run = start([sys.executable, "-c", SMALL_TRAINER], file=file, program=WITH_REAL_PARTS)
    for _ in range(workers):
        run.err.wait_for("worker-. was killed by SIG")
    run.err.wait_for(error)
    assert run.wait() == 1


SMALL_TRAINER = """
import distributed_input as di

with di.connect("train", timeout=60) as train:
    rows = [row for batch in train.numpy() for row in batch.tolist()]
print(sorted(rows) == list(range(64)), flush=True)
input()
"""


def test_a_local_worker_has_the_lowest_priority_and_delivers_every_row(start, tmp_path):
    """The dataset is small: other tests may use all CPUs, and they come first."""
    pytest.importorskip("tensorflow")
    (tmp_path / "numbers_of.py").write_text(REAL_DATASET.replace("20000", "64"))
    file = REAL_INPUT.replace("spec:", "spec:\n  numSplits: 8")
    command = [sys.executable, "-c", SMALL_TRAINER]
    run = start(command, "--workers", "local", file=file, program=WITH_REAL_PARTS)
    run.out.wait_for("True")
    worker, sidecar = run.pid("worker-0"), run.pid("sidecar-0")
    assert os.getpriority(os.PRIO_PROCESS, worker) == 19
    assert os.getpriority(os.PRIO_PROCESS, sidecar) == os.getpriority(os.PRIO_PROCESS, 0)
    with contextlib.suppress(OSError):  # not all kernels schedule sessions as groups
        assert Path(f"/proc/{worker}/autogroup").read_text().split()[-1:] in (["19"], [])
    write_line(run, "end")
    assert run.wait() == 0
    assert [name for name in run.report()["processes"] if "worker" in name] == ["worker-0"]


def rows_in_status(run: Run) -> int:
    """Return the rows of the only consumer in `distributed-input status`; -1 if there is none."""
    try:
        flags = ["--dispatcher", str(run.ready("dispatcher")["address"])]
    except FileNotFoundError:  # it value killed, and the next one is not ready yet
        return -1
    flags += ["--token-file", str(run.folder / "tokens" / "train"), "--json"]
    command = [sys.executable, "-m", "distributed_input.cli", "status", *flags]
    done = subprocess.run(command, capture_output=True, text=True)
    consumers = json.loads(done.stdout)["consumers"] if done.returncode == 0 else []
    return int(consumers[0]["rows"]) if consumers else -1


# A program may end while TensorFlow waits for the next batch.

SLOW_DATASET = """
import time
import tensorflow as tf

def wait(row):
    time.sleep(0.5)
    return row

def dataset_fn(ctx):
    rows = tf.data.Dataset.range(10**9).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    rows = rows.map(lambda row: tf.ensure_shape(tf.numpy_function(wait, [row], tf.int64), []))
    return rows.batch(ctx.get_per_replica_batch_size(8))
"""
ENDS_EARLY = """
import sys
import distributed_input as di

with di.connect("train", timeout=60) as train:
    iterator = iter(train.dataset().prefetch(2))
    print(next(iterator).shape, flush=True)
    if sys.argv[1] == "within":
        sys.exit(3)
sys.exit(3)
"""


@pytest.mark.parametrize("place", ["within", "behind"])
def test_a_program_ends_while_its_dataset_waits(start, tmp_path, place):
    pytest.importorskip("tensorflow")
    (tmp_path / "slow_numbers.py").write_text(SLOW_DATASET)
    file = REAL_INPUT.replace("numbers_of", "slow_numbers").replace("replicas: 2", "replicas: 1")
    run = start([sys.executable, "-c", ENDS_EARLY, place], file=file, program=WITH_REAL_PARTS)
    run.out.wait_for(r"\(8,\)")
    assert run.wait() == 3
