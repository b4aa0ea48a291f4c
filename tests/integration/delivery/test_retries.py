"""A retryable error in the middle of a step: iterating again delivers that whole step.

Two replicas share a step. The error comes after the rows of the first one were sent, so the loop
never gets the step.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeAlias

import pytest
import tensorflow as tf

from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, spec
from testing.integration.devices import CPUS

# TensorFlow also warns if a dataset is iterated within a function.
pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")

BATCH = 8
ROWS = 6 * BATCH
FULL_STEPS = 2
MIDDLE = FULL_STEPS * BATCH + BATCH // 2
"""Rows before the second replica's rows in the next step."""
TIMEOUT = 2
"""Timeout of the resource in seconds, `spec.sidecar.timeoutSeconds`."""

Loop: TypeAlias = Callable[["Training"], None]


class Held:
    """An input whose dataset stops after some rows until `go` is called."""

    def __init__(self, cluster: Cluster, folder: Path, rows_before: int, **fields: Any) -> None:
        self._file = folder / "go"
        kib = fields.pop("kib", 1)
        args = {"rows": ROWS, "rows_before": rows_before, "until": str(self._file), "kib": kib}
        common = {"partitions": 1, "numSplits": 1, "timeoutSeconds": TIMEOUT}
        name = f"held-{abs(hash(str(folder))) % 100_000}"
        one = spec("wide:held", args, globalBatchSize=BATCH, **common, **fields)
        (self.sidecar,) = cluster.add_sidecars({name: one})

    def go(self) -> None:
        self._file.touch()


@pytest.fixture
def held(cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Held]:
    """Yield an input that stops in the middle of step 2, or as the test's parameter states.

    The second replica's first row arrives, because the sidecar then sends the first one's rows.
    """
    fields = {"rows_before": MIDDLE + 1, **getattr(request, "param", {})}
    one = Held(cluster, tmp_path, **fields)
    yield one
    one.go()


class Training:
    """A loop that counts the rows of each step."""

    def __init__(self, train: Input) -> None:
        self.train = train
        self.strategy = tf.distribute.MirroredStrategy(CPUS)
        with tf.device("CPU:0"):
            self.seen = tf.Variable(tf.zeros([ROWS], tf.int64))
            self.steps = tf.Variable(0)
        self.dataset = train.distribute(self.strategy)

    def count(self, batch: Any) -> None:
        local = tf.concat(self.strategy.experimental_local_results(batch["id"]), 0)
        with tf.control_dependencies([local]):
            self.seen.scatter_nd_add(local[:, None], tf.ones_like(local))
            self.steps.assign_add(1)

    # The loops. Those in functions have no parallel steps: TensorFlow cancels the steps that run
    # together with the failed one.

    def eager(self) -> None:
        for batch in self.dataset:
            self.count(batch)

    def eager_with_new_dataset(self) -> None:
        for batch in self.train.distribute(self.strategy):
            self.count(batch)

    def steps_in_function(self) -> None:
        iterator = iter(self.dataset)
        with contextlib.suppress(tf.errors.OutOfRangeError):
            while True:
                self._three_steps(iterator)

    @tf.function
    def _three_steps(self, iterator: Any) -> None:
        for _ in tf.range(FULL_STEPS + 1):
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            self.count(next(iterator))

    @tf.function
    def epoch_in_function(self) -> None:
        for batch in self.dataset:
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            self.count(batch)

    def epoch_in_function_with_argument(self) -> None:
        self._epoch_of(self.dataset)

    @tf.function
    def _epoch_of(self, dataset: Any) -> None:
        for batch in dataset:
            tf.autograph.experimental.set_loop_options(parallel_iterations=1)
            self.count(batch)

    def fail(self, loop: Loop) -> None:
        """Run a loop into the error, and check what it had got."""
        with pytest.raises(tf.errors.OpError, match=rf"for {TIMEOUT} s"):
            loop(self)
        assert self.steps.numpy() == FULL_STEPS
        assert self.rows() == list(range(FULL_STEPS * BATCH))

    def read_rest(self, loop: Loop) -> None:
        """Run a loop again, which gets every other row of the epoch, in whole steps."""
        loop(self)
        assert self.rows() == list(range(ROWS))
        assert self.steps.numpy() == ROWS // BATCH

    def rows(self) -> list[int]:
        """Return the rows of all steps. Raises AssertionError if one came twice."""
        seen = self.seen.numpy().tolist()
        assert set(seen) <= {0, 1}, seen
        return [row for row, count in enumerate(seen) if count]


LOOPS = (
    Training.eager,
    Training.eager_with_new_dataset,
    Training.steps_in_function,
    Training.epoch_in_function,
    Training.epoch_in_function_with_argument,
)
IDS = [loop.__name__ for loop in LOOPS]


@pytest.mark.parametrize("loop", LOOPS, ids=IDS)
def test_a_loop_gets_the_failed_step_when_it_iterates_again(held: Held, loop: Loop) -> None:
    with readers.connect(held.sidecar) as train:
        training = Training(train)
        training.fail(loop)
        held.go()
        training.read_rest(loop)


@pytest.mark.parametrize("loop", LOOPS[::3], ids=IDS[::3])
def test_a_checkpoint_after_the_error_continues_with_the_failed_step(
    held: Held, loop: Loop
) -> None:
    with readers.connect(held.sidecar) as train:
        training = Training(train)
        training.fail(loop)
        position = train.position()
    held.go()
    with readers.connect(held.sidecar) as train:
        train.restore(position)
        rest = [int(row) for batch in train.numpy() for row in batch["id"]]
    assert rest == list(range(FULL_STEPS * BATCH, ROWS))


@pytest.mark.parametrize(
    "held",
    [
        {"kib": 64},
        {"rows_before": FULL_STEPS * BATCH},
        {"rows_before": MIDDLE},
        {"rows_before": (FULL_STEPS + 1) * BATCH - 1},
    ],
    ids=["large units", "between steps", "between units", "before the last row"],
    indirect=True,
)
def test_the_failed_step_is_whole_wherever_the_error_comes(held: Held) -> None:
    with readers.connect(held.sidecar) as train:
        training = Training(train)
        for _ in range(2):  # the second one fails before its first step
            with pytest.raises(tf.errors.OpError, match=rf"for {TIMEOUT} s"):
                training.eager()
        held.go()
        training.read_rest(Training.eager)
