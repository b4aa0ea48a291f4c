"""JAX reads arrays, and PyTorch tensors: the examples, run as their README describes."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from testing import examples
from testing.cluster.debian import AptMissingError
from testing.compat import pytorch
from testing.compat.behaviour import Reference, behaviour

FRAMEWORKS = Reference.FRAMEWORKS
ROOT = Path(__file__).parents[2]
SECONDS = 150.0


def run(example: str, python: Sequence[str] = (sys.executable,)) -> str:
    """Run an example and return its output."""
    done = subprocess.run(
        [
            *(sys.executable, "-m", "distributed_input.cli", "run", "examples/digits/input.yaml"),
            *("--", *python, f"examples/frameworks/{example}"),
        ],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=SECONDS,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@behaviour(
    FRAMEWORKS,
    shows="a JAX training loop, without TensorFlow in the trainer",
    call="`for batch in train.numpy()`; [train_jax.py](../examples/frameworks/train_jax.py)",
)
def test_a_jax_loop_reads_every_row() -> None:
    assert run("train_jax.py", [examples.PYTHON]).count("1437 rows") == 8


@behaviour(
    FRAMEWORKS,
    shows="a PyTorch training loop, without TensorFlow in the trainer",
    call="`for batch in train.torch()`; [train_torch.py](../examples/frameworks/train_torch.py)",
)
@pytest.mark.timeout(600)
def test_a_pytorch_loop_reads_every_row() -> None:
    try:
        python = pytorch.python()
    except AptMissingError as missing:
        pytest.skip(str(missing))
    assert run("train_torch.py", python).count("1437 rows") == 8
