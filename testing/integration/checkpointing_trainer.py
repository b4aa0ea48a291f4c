"""A trainer of `MultiWorkerMirroredStrategy` that saves a checkpoint and then crashes.

The arguments are FOLDER and STEPS. The trainer restores the chief's newest checkpoint in FOLDER, if
there is one, and trains for STEPS steps (0: to the end of the epoch). Then it saves as TensorFlow's
guide describes, trains two more steps and exits without closing anything. Every other trainer saves
into a folder that is not read again. The environment has DISTRIBUTED_INPUT_DIR and TF_CONFIG.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

import distributed_input
from testing.processes.forks import own_arguments, write_results

STEPS_AFTER_SAVE = 2
"""Steps after the checkpoint."""


def training_step(
    strategy: tf.distribute.Strategy,
) -> tuple[Callable[[Any], list[int]], tf.Variable]:
    """Return a training step and the weights.

    The step returns this process's rows. The weights are the sum of all rows.
    """
    with strategy.scope():
        total = tf.Variable(0, dtype=tf.int64, trainable=False)

    @tf.function(reduce_retracing=True)
    def step(batch: Any) -> Any:
        rows = strategy.run(lambda batch: batch["id"], args=(batch,))
        total.assign_add(strategy.reduce("SUM", rows, axis=0))
        return strategy.experimental_local_results(rows)

    return lambda batch: [int(row) for one in step(batch) for row in one], total


def main(argv: Sequence[str]) -> None:
    """Train and write {restored, rows by step, late rows after the save, total of the weights}."""
    (chiefs, limit), path = own_arguments(argv)
    chief_folder, steps = Path(chiefs), int(limit)
    strategy = tf.distribute.MultiWorkerMirroredStrategy()
    chief = strategy.cluster_resolver.task_id == 0
    folder = chief_folder if chief else chief_folder / f"of-{os.getpid()}"
    with distributed_input.connect("train") as train:
        step, total = training_step(strategy)
        checkpoint = tf.train.Checkpoint(total=total, input=train.state)
        manager = tf.train.CheckpointManager(checkpoint, str(folder), max_to_keep=2)
        dataset = train.distribute(strategy)
        restored = tf.train.latest_checkpoint(str(chief_folder))  # only the chief's checkpoint
        if restored:
            checkpoint.restore(restored).assert_consumed()
        rows: list[Any] = []
        late: list[Any] = []
        for batch in dataset:
            into = rows if not steps or len(rows) < steps else late
            into.append(step(batch))
            if len(rows) == steps and not late:
                manager.save()
            if len(late) == STEPS_AFTER_SAVE:
                break
        result = {
            "restored": bool(restored),
            "rows": rows,
            "late": late,
            "total": int(total.numpy()),
        }
        write_results(path, result)
        os._exit(0)  # crash: close nothing
