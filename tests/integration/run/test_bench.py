"""`distributed-input bench` as a user runs it: real workers, and tf.data in a process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

INPUT = """\
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  dataset:
    type: EntryPoint
    entryPoint: {function: "rows:dataset_fn", source: {type: Path, path: .}}
  epochs: 1
"""
ROWS = """\
import tensorflow as tf

def dataset_fn(context):
    print("some output of the user's code")
    rows = tf.data.Dataset.range(400).shard(context.num_input_pipelines, context.input_pipeline_id)
    return rows.batch(context.get_per_replica_batch_size(8))
"""


def bench(folder: Path, *flags: str) -> subprocess.CompletedProcess[str]:
    (folder / "input.yaml").write_text(INPUT)
    return subprocess.run(
        [sys.executable, "-m", "distributed_input.cli", "bench", "input.yaml", *flags],
        cwd=folder,
        env={**os.environ, "TMPDIR": str(folder)},
        capture_output=True,
        text=True,
    )


def test_a_dataset_in_process_and_through_workers(tmp_path):
    pytest.importorskip("tensorflow")
    (tmp_path / "rows.py").write_text(ROWS)
    done = bench(tmp_path, "--workers", "1", "--seconds", "0.5", "-o", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    in_process, through_worker = found["runs"]
    assert (in_process["workers"], through_worker["workers"]) == (0, 1)
    for one in found["runs"]:
        # Both read whole batches, and count their rows.
        assert one["rows"] > 0
        assert one["rows"] % 8 == 0
        assert one["start_seconds"] > 0
    assert in_process["ratio"] == 1
    assert through_worker["ratio"] > 0
    assert through_worker["workers_cpu"] is not None
    assert found["text"]
    lines = [line.split(":")[0].strip() for line in done.stderr.splitlines()]
    # On a slow machine, there are lines about what takes long.
    assert [line for line in lines if line != "distributed-input"] == [
        *("train", "tf.data in process", "train", "1 worker", "tf.data in process")
    ]
    assert not list(tmp_path.glob("distributed-input-*/run-*"))  # what `local` started is gone
