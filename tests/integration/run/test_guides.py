"""The programs in the guides run as they are, with fewer rows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from testing.documentation import concepts
from testing.documentation.blocks import ROOT, blocks

CLI = (sys.executable, "-m", "distributed_input.cli")
ROWS = {"6400": "640", "7040": "704"}
"""Numbers in docs/keras.md, and those of the test."""


def texts(page: str, language: str) -> list[str]:
    found = blocks(page, (ROOT / "docs" / page).read_text())
    return [block.text for block in found if block.language == language]


@pytest.fixture
def project(tmp_path):
    """Return a folder with the inputs and the dataset of docs/keras.md."""
    resource = texts("keras.md", "yaml")[0]
    for before, after in ROWS.items():
        assert before in resource
        resource = resource.replace(before, after)
    (tmp_path / "input.yaml").write_text(resource)
    (tmp_path / "dataset.py").write_text(texts("keras.md", "python")[0])
    return tmp_path


def run(project: Path, program: str, *flags: str) -> dict[str, tuple[int, int]]:
    """Run a program; return the epochs and rows of each input."""
    pytest.importorskip("tensorflow")
    (project / "train.py").write_text(program)
    done = subprocess.run(
        [*CLI, "run", "input.yaml", "--report", "r.json", *flags, "--", sys.executable, "train.py"],
        cwd=project,
        env={**os.environ, "TMPDIR": str(project)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    inputs = json.loads((project / "r.json").read_text())["inputs"]
    return {name: (one["epochs"], one["rows"]) for name, one in inputs.items()}


def test_the_keras_program_trains_and_validates(project):
    read = run(project, texts("keras.md", "python")[1])
    assert read == {"train": (3, 3 * 640), "validation": (3, 3 * 64)}


def test_the_custom_loop_trains(project):
    read = run(project, texts("loops.md", "python")[0])
    assert read["train"] == (3, 3 * 640)
    assert any((project / "checkpoints").glob("ckpt-*.index"))


def test_the_custom_loop_trains_in_two_processes(project):
    program, strategy = texts("loops.md", "python")[:2]
    one = "strategy = tf.distribute.MirroredStrategy()\n"
    assert one in program
    # Each process has its own folder of checkpoints.
    program = program.replace(one, strategy).replace(
        '"checkpoints"', "str(strategy.cluster_resolver.task_id)"
    )
    read = run(project, program, "--trainers", "2")
    assert read["train"] == (3, 3 * 640)


def test_the_packing_program_wastes_few_places(tmp_path):
    (tmp_path / "input.yaml").write_text(texts("packing.md", "yaml")[0])
    dataset, program = texts("packing.md", "python")[:2]
    assert "8000" in dataset
    (tmp_path / "documents.py").write_text(dataset.replace("8000", "800"))
    epochs, rows = run(tmp_path, program)["documents"]
    sizes = np.random.default_rng(0).lognormal(np.log(400), 1.0, 800).clip(1, 2048)
    assert epochs == 1
    assert sizes.astype(int).sum() <= 2048 * rows < 1.1 * sizes.sum()


PRINT_STEPS = """
import os
import distributed_input

with distributed_input.connect("numbers") as numbers:
    steps = [batch.tolist() for batch in numbers.numpy()]
with open(f"trainer-{os.environ['DISTRIBUTED_INPUT_CONSUMER_INDEX']}", "w") as file:
    print(*steps, sep="\\n", file=file)
"""


@pytest.mark.parametrize("trainers", [1, 2])
def test_the_rows_of_the_concepts_go_where_the_page_says(tmp_path, trainers):
    (tmp_path / "input.yaml").write_text(texts("concepts.md", "yaml")[0])
    (tmp_path / "numbers_data.py").write_text(texts("concepts.md", "python")[0])
    run(tmp_path, PRINT_STEPS, "--trainers", str(trainers))
    for trainer in range(trainers):
        steps = (tmp_path / f"trainer-{trainer}").read_text().splitlines()
        expected = concepts.steps(trainer, trainers)
        assert [json.loads(step) for step in steps] == [[one.row for one in s] for s in expected]
