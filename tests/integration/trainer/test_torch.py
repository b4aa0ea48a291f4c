"""Batches as PyTorch tensors, in a trainer without TensorFlow."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

from distributed_input.api.environment import DIR_ENV
from distributed_input.api.errors import ConfigError
from testing.cluster.debian import AptMissingError
from testing.compat import pytorch
from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.processes.forks import REPO


@pytest.mark.timeout(600)
def test_tensors_have_the_rows_and_positions_of_arrays(cluster: Cluster) -> None:
    try:
        python = pytorch.python()
    except AptMissingError as missing:
        pytest.skip(str(missing))
    few: dict[str, Any] = {"partitions": 2, "numSplits": 3}
    inputs = {
        "dense": spec("element_types:dense", **few, globalBatchSize=8),
        "varied": spec("element_types:varied", **few),
    }
    (sidecar,) = cluster.add_sidecars(inputs)
    done = subprocess.run(
        [*python, str(REPO / "testing" / "integration" / "torch_trainer.py"), *inputs],
        env={**os.environ, DIR_ENV: str(sidecar.shared)},
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == list(inputs)


def test_without_torch_the_error_names_the_remedy(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    (sidecar,) = cluster.add_sidecars({"missing": spec("rows:numbered", globalBatchSize=10)})
    monkeypatch.setitem(sys.modules, "torch", None)
    with readers.connect(sidecar) as data:
        with pytest.raises(ConfigError, match="pip install torch"):
            data.torch()
        assert len(list(data.numpy())) == 10  # no epoch began
