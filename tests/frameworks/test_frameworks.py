"""Trainings of each framework that end and resume: the programs of testing/frameworks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.environment import DIR_ENV
from testing.frameworks import environment
from testing.frameworks.resumption import BATCH, ROWS
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.operator.webhooks import free_port

SECONDS = 400.0
pytestmark = pytest.mark.timeout(SECONDS + 1500)  # the first test creates the environment


def rows(name: str, **fields: Any) -> Any:
    """Return the spec of a dataset of `rows.py`."""
    return spec(f"rows:{name}", {"rows": ROWS}, **fields)


FEW: dict[str, Any] = {"partitions": 2, "numSplits": 4, "globalBatchSize": BATCH}
EVEN: dict[str, Any] = {
    "partitions": 4,
    "numSplits": 4,
    "globalBatchSize": 8,
    "remainder": "Drop",
}
INPUTS = {
    "train": rows("numbered", **FEW),
    "validation": rows("numbered", **FEW),
    "labeled": rows("labeled", **FEW),
    "validation_labeled": rows("labeled", **FEW),
    "even": rows("numbered", **EVEN),
}
EVERY = 104
"""Rows of an epoch of which every step has eight."""
RANKS = spec("rows:numbered", {"rows": EVERY}, partitions=8, numSplits=8, globalBatchSize=8)
GUIDE = {
    "train": rows("labeled", **EVEN),
    "validation": rows("labeled", **EVEN),
    "tokens": rows("tokens", **EVEN),
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as cluster:
        cluster.add_workers(2)
        yield cluster
        print(cluster.new_log_lines())


@pytest.fixture(scope="module")
def sidecar(cluster: Cluster) -> Sidecar:
    return cluster.add_sidecars(INPUTS)[0]


def start(sidecar: Sidecar, command: Sequence[str]) -> subprocess.Popen[str]:
    return subprocess.Popen(
        command,
        cwd=Path(__file__).parents[2],
        env={**os.environ, DIR_ENV: str(sidecar.shared)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait(*processes: subprocess.Popen[str]) -> None:
    """Wait for programs, and check that they succeeded."""
    try:
        for process in processes:
            output, _ = process.communicate(timeout=SECONDS)
            assert process.returncode == 0, output
    finally:
        for process in processes:
            process.kill()


@pytest.mark.parametrize(
    "program",
    [
        "stateful_data_loader loader",
        "stateful_data_loader dcp",
        "accelerate_loop",
        "lightning_fit",
        "hugging_face_trainer",
        "jax_loop",
        "jax_loop handler",
        "keras_fit jax",
        "keras_fit torch",
    ],
)
def test_a_resumed_training_uses_each_row_once(sidecar: Sidecar, program: str) -> None:
    wait(start(sidecar, environment.command(*program.split())))


def test_keras_on_tensorflow_resumes_too(sidecar: Sidecar) -> None:
    wait(start(sidecar, [sys.executable, "-m", "testing.frameworks.keras_fit", "tensorflow"]))


@pytest.mark.parametrize("page", ["docs/pytorch.md", "docs/jax.md"])
def test_the_examples_of_a_page_run(page: str) -> None:
    with Cluster() as cluster:
        cluster.add_workers(1)
        (sidecar,) = cluster.add_sidecars(GUIDE)
        wait(start(sidecar, environment.command("guide", page)))


def test_jax_processes_read_the_steps_of_one_process(tmp_path: Path) -> None:
    """Steps of two processes, then one, and the other way around, are those of one process."""
    number, steps = 5, 2 * (ROWS // 8)

    def read(consumers: int, count: int, state: str) -> list[list[int]]:
        with Cluster() as cluster:
            cluster.add_workers(1)
            sidecars = cluster.add_sidecars({"even": INPUTS["even"]}, consumers)
            out, port = tmp_path / "out.json", str(free_port())
            arguments = (str(consumers), port, str(count), str(tmp_path / state), str(out))
            commands = [
                environment.command("jax_processes", str(index), *arguments)
                for index in range(consumers)
            ]
            wait(*(start(*pair) for pair in zip(sidecars, commands, strict=True)))
        found: list[list[int]] = json.loads(out.read_text())
        return found

    whole = read(1, steps, "whole")
    assert [len(step) for step in whole] == [8] * steps
    assert len({row for step in whole[: steps // 2] for row in step}) == 8 * steps // 2
    assert read(2, number, "less") + read(1, steps - number, "less") == whole
    assert read(1, number, "more") + read(2, steps - number, "more") == whole


def test_ranks_of_torchrun_resume_in_other_numbers_of_pods_and_ranks(tmp_path: Path) -> None:
    """Two pods of two ranks are killed, and resume as one of two and as two of four."""
    total, saved, killed = 2 * EVERY // 8, 5, 8
    state = tmp_path / "state.pt"

    def read(pods: int, ranks: int, *numbers: int, succeeds: bool = True) -> list[list[int]]:
        out = tmp_path / f"{pods}x{ranks}.jsonl"
        arguments = [*map(str, numbers), str(state), str(out)]
        *environ, dash, module = environment.command("torchrun_ranks")
        with Cluster() as cluster:
            cluster.add_workers(2)
            sidecars = cluster.add_sidecars({"ranks": RANKS}, pods, ranks_per_trainer=ranks)
            flags = [f"--nnodes={pods}", f"--nproc-per-node={ranks}", "--master-addr=127.0.0.1"]
            flags.append(f"--master-port={free_port()}")
            torchrun = [*environ, dash, "torch.distributed.run", *flags]
            started = [
                start(sidecar, [*torchrun, f"--node-rank={pod}", dash, module, *arguments])
                for pod, sidecar in enumerate(sidecars)
            ]
            if succeeds:
                wait(*started)
            else:
                outputs = [process.communicate(timeout=SECONDS)[0] for process in started]
                assert all(process.returncode for process in started), outputs
        return [json.loads(line) for line in out.read_text().splitlines()]

    # TensorFlow in one process. The order within a step depends on the ranks.
    dataset = tf.data.Dataset.range(EVERY).batch(8).repeat(2)
    expected = [numbers.tolist() for numbers in dataset.as_numpy_iterator()]
    before = read(2, 2, total, saved, killed, succeeds=False)
    assert before == expected[: len(before)]
    assert saved < len(before) < total
    assert read(1, 2, total, 0, 0) == expected[saved:]
    assert read(2, 4, total, 0, 0) == expected[saved:]
