"""`distributed-input run` starts tf.data service and passes its address to the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from testing.compat.behaviour import Reference, behaviour

PROGRAM = """
import json, os, sys
import tensorflow as tf
service = tf.data.experimental.service
rows = tf.data.Dataset.range(40).apply(service.distribute(
    processing_mode=service.ShardingPolicy.DATA,
    service=os.environ["DISTRIBUTED_INPUT_TF_DATA_SERVICE"]))
json.dump(sorted(rows.as_numpy_iterator(), key=int), open(sys.argv[1], "w"), default=int)
"""
INPUT = """
apiVersion: distributed-input.dev/v1beta1
kind: DistributedInput
metadata: {name: train}
spec:
  workers: {replicas: 2}
  encryption: None
  tfDataService: {staticSharding: true}
"""


@behaviour(
    Reference.SERVICE,
    shows="a program gets the address of the service",
    call="`distributed-input run input.yaml -- python train.py`: "
    "`$DISTRIBUTED_INPUT_TF_DATA_SERVICE`",
)
def test_a_program_finds_the_service_by_its_environment(tmp_path: Path) -> None:
    (tmp_path / "program.py").write_text(PROGRAM)
    (tmp_path / "input.yaml").write_text(INPUT)
    out = tmp_path / "rows.json"
    run = [sys.executable, "-m", "distributed_input.cli", "run", "input.yaml", "--"]
    done = subprocess.run(
        [*run, sys.executable, "program.py", str(out)],
        cwd=tmp_path,
        capture_output=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr.decode()[-3000:]
    assert json.loads(out.read_text()) == list(range(40))
