"""The files of a new project. `tests/integration/run/test_starter_project.py` runs them."""

from __future__ import annotations

import ast

from distributed_input.api.resource.parse import parse
from distributed_input.runner.starter_project import starter_files


def test_the_files_have_the_values():
    files = starter_files("photos", workers=3, batch=48)
    resource = parse(files["input.yaml"])
    assert (resource.metadata.name, resource.spec.workers.replicas) == ("photos", 3)
    assert resource.spec.dataset.entry_point
    assert resource.spec.dataset.entry_point.function == "dataset:dataset_fn"
    assert "BATCH = 48 " in files["dataset.py"]
    assert 'connect("photos")' in files["train.py"]
    for name in ("dataset.py", "train.py"):
        assert ast.get_docstring(ast.parse(files[name]))
