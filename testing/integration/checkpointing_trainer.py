"""A trainer of `MultiWorkerMirroredStrategy` that saves as TensorFlow's guide says, and dies.

    DISTRIBUTED_INPUT_DIR=... TF_CONFIG=... python -m testing.integration.checkpointing_trainer FOLDER STEPS

It restores the chief's newest checkpoint in FOLDER, if there is one, trains for STEPS steps (0: to
the epoch's end), saves, trains for two more, and is gone without another word. Every trainer but
the chief writes into a folder that nobody reads again. Prints what it saw as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tensorflow as tf

import distributed_input

AFTER_THE_SAVE = 2
"""Steps that no checkpoint knows of."""


def counted_by(strategy: tf.distribute.Strategy) -> tuple[Callable[[Any], list[int]], tf.Variable]:
    """A training step, which gives this process's rows, and the weights, which sum up all rows."""
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function(reduce_retracing=True)
    def step(batch: Any) -> Any:
        rows = strategy.run(lambda batch: batch["id"], args=(batch,))
        total.assign_add(strategy.reduce("SUM", rows, axis=0))
        return strategy.experimental_local_results(rows)

    return lambda batch: [int(row) for one in step(batch) for row in one], total


def main() -> None:
    """Prints {restored, rows: by step, late: those behind the save, total: of the weights}."""
    chiefs, steps = Path(sys.argv[1]), int(sys.argv[2])
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    chief = strategy.cluster_resolver.task_id == 0
    folder = chiefs if chief else chiefs / f"of-{os.getpid()}"
    with distributed_input.connect("train") as train:
        step, total = counted_by(strategy)
        checkpoint = tf.train.Checkpoint(total=total, input=train.state)
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
        dataset = train.distribute(strategy)
        restored = tf.train.latest_checkpoint(str(chiefs))  # the chief's, alone
        if restored:
            checkpoint.restore(restored).assert_consumed()
        rows: list[Any] = []
        late: list[Any] = []
        for batch in dataset:
            into = rows if not steps or len(rows) < steps else late
            into.append(step(batch))
            if len(rows) == steps and not late:
                manager.save()
            if len(late) == AFTER_THE_SAVE:
                break
        told = {"restored": bool(restored), "rows": rows, "late": late, "total": int(total.numpy())}
        print(json.dumps(told), flush=True)
        os._exit(0)  # a crash: nothing is closed


if __name__ == "__main__":
    main()
