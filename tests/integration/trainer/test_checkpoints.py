"""`tf.train.Checkpoint` and `CheckpointManager` save exactly what the loop has consumed.

The weights of these tests are the sum of the rows, and are saved beside the position. If a position
and weights belong to different steps, rows are lost or repeated and the sum is wrong.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import FencedError, PositionError
from distributed_input.api.proto import trainer_pb2
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.checkpointing_trainer import training_step
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS

# TensorFlow also warns if a dataset is iterated within a function.
pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")

ROWS, BATCH = 150, 8
STEPS = -(-ROWS // BATCH)
EVERY = set(range(ROWS))
RESOURCE: dict[str, Any] = {"partitions": 4, "numSplits": 12, "globalBatchSize": BATCH}


class Training:
    """A model, its checkpoint, and the rows of each step since the restart."""

    def __init__(self, train: Input, **more: Any) -> None:
        self.strategy = tf.distribute.MirroredStrategy(CPUS)
        self.step, self.total = training_step(self.strategy)
        self.train = train
        self.checkpoint = tf.train.Checkpoint(total=self.total, input=train.state, **more)
        self.rows: list[list[int]] = []

    def dataset(self, **options: Any) -> Any:
        chosen = tf.distribute.InputOptions(**options) if options else None
        return self.train.distribute(self.strategy, options=chosen)

    def steps(self, iterator: Iterator[Any], count: int) -> None:
        for _ in range(count):
            self.rows.append(self.step(next(iterator)))

    def rest(self, batches: Any) -> None:
        for batch in batches:
            self.rows.append(self.step(batch))


def flat(steps: list[list[int]]) -> list[int]:
    return [row for step in steps for row in step]


@pytest.fixture
def sidecar(cluster: Cluster, request: pytest.FixtureRequest) -> Sidecar:
    name = f"saved-{abs(hash(request.node.name)) % 10_000}"
    (made,) = cluster.add_sidecars({name: spec("rows:numbered", {"rows": ROWS}, **RESOURCE)})
    return made


def assert_rest_of_epoch(sidecar: Sidecar, path: str, before: list[list[int]]) -> None:
    """Read the rest of the epoch after a restart. Check the rows and the weights."""
    with readers.connect(sidecar) as train:
        training = Training(train)
        training.checkpoint.read(path).assert_consumed()
        training.rest(training.dataset())
        assert sorted(flat(before) + flat(training.rows)) == sorted(EVERY)
        assert int(training.total.numpy()) == sum(EVERY)


PREFETCHED = {"experimental_fetch_to_device": True, "experimental_per_replica_buffer_size": 4}


@pytest.mark.parametrize("options", [{}, PREFETCHED], ids=["", "prefetched to devices"])
@pytest.mark.parametrize("at", [1, 7, STEPS - 1, STEPS])
def test_a_loop_continues_from_its_checkpoint(
    sidecar: Sidecar, tmp_path: Path, at: int, options: dict[str, Any]
) -> None:
    """In the middle, before the last step, and after the last step before the end is detected."""
    with readers.connect(sidecar) as train:
        training = Training(train)
        training.steps(iter(training.dataset(**options)), at)
        path = training.checkpoint.write(str(tmp_path / "one"))
    assert_rest_of_epoch(sidecar, path, training.rows)


def test_a_loop_over_whole_elements_continues_from_its_checkpoint(cluster: Cluster) -> None:
    """Without a batch size, a step of the loop has one element of any partition."""
    resource = {**RESOURCE, "partitions": 8}
    del resource["globalBatchSize"]
    made = spec("rows:numbered", {"rows": ROWS}, **resource)
    (sidecar,) = cluster.add_sidecars({"whole": made})
    strategy = tf.distribute.OneDeviceStrategy("CPU:0")
    with readers.connect(sidecar) as train:
        iterator = iter(train.distribute(strategy))
        before = [int(next(iterator)["id"]) for _ in range(5)]
        position = train.position()
    with readers.connect(sidecar) as train:
        train.restore(position)
        rest = [int(element["id"]) for element in train.distribute(strategy)]
    assert sorted(before + rest) == sorted(EVERY)


def test_steps_within_a_function_are_counted(sidecar: Sidecar, tmp_path: Path) -> None:
    """Count several steps per call, without the batches that are prefetched to the devices."""
    with readers.connect(sidecar) as train:
        training = Training(train)

        @tf.function
        def five(iterator: Any) -> Any:
            rows = tf.TensorArray(tf.int64, 5, infer_shape=False)
            for at in tf.range(5):
                batch = next(iterator)["id"]
                training.total.assign_add(training.strategy.reduce("SUM", batch, axis=0))
                local = training.strategy.experimental_local_results(batch)
                rows = rows.write(at, tf.concat(local, 0))
            return rows.concat()

        iterator = iter(training.dataset(**PREFETCHED))
        training.rows += [five(iterator).numpy().tolist(), five(iterator).numpy().tolist()]
        path = training.checkpoint.write(str(tmp_path / "one"))
    assert len(flat(training.rows)) == 10 * BATCH
    assert_rest_of_epoch(sidecar, path, training.rows)


def test_an_epoch_within_a_function_has_ended_after_it(sidecar: Sidecar, tmp_path: Path) -> None:
    with readers.connect(sidecar) as train:
        training = Training(train)

        @tf.function
        def epoch(dataset: Any) -> None:
            for batch in dataset:
                training.total.assign_add(training.strategy.reduce("SUM", batch["id"], axis=0))

        epoch(training.dataset())
        assert int(training.total.numpy()) == sum(EVERY)
        assert trainer_pb2.Position.FromString(train.position()).end
        path = training.checkpoint.write(str(tmp_path / "one"))
    with readers.connect(sidecar) as train:
        second = Training(train)
        second.checkpoint.read(path).assert_consumed()
        second.rest(second.dataset())
        assert sorted(flat(second.rows)) == sorted(EVERY)
        assert int(second.total.numpy()) == 2 * sum(EVERY)


def test_a_checkpoint_manager_restores_any_kept_checkpoint(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    """In the same process too, `iter` after a restore returns to the position of the checkpoint."""
    saved: dict[str, int] = {}
    with readers.connect(sidecar) as train:
        training = Training(train)
        manager = tf.train.CheckpointManager(training.checkpoint, str(tmp_path), max_to_keep=2)
        assert manager.restore_or_initialize() is None
        iterator = iter(training.dataset())
        for _ in range(4):
            training.steps(iterator, 3)
            saved[manager.save()] = len(training.rows)
        kept = manager.checkpoints
        assert [saved[path] for path in kept] == [9, 12]
        training.checkpoint.restore(kept[0])
        del training.rows[9:]
        training.steps(iter(training.dataset()), 2)
        assert manager.save()
    with readers.connect(sidecar) as train:
        second = Training(train)
        manager = tf.train.CheckpointManager(second.checkpoint, str(tmp_path), max_to_keep=2)
        assert manager.restore_or_initialize() == manager.latest_checkpoint
        second.rest(second.dataset())
        assert len(training.rows) == 11
        assert sorted(flat(training.rows + second.rows)) == sorted(EVERY)
        assert int(second.total.numpy()) == sum(EVERY)


@pytest.mark.parametrize("options", [{}, PREFETCHED], ids=["", "prefetched to devices"])
@pytest.mark.parametrize("at", [0, 5, STEPS - 1], ids=["start", "middle", "last step"])
def test_a_running_iterator_moves_to_the_restored_position(
    sidecar: Sidecar, tmp_path: Path, at: int, options: dict[str, Any]
) -> None:
    """As in tf.data: `iterator = iter(dataset); checkpoint.restore(path)`."""
    with readers.connect(sidecar) as train:
        training = Training(train)
        iterator = iter(training.dataset(**options))
        training.steps(iterator, at)
        path = training.checkpoint.write(str(tmp_path / "one"))
        before = training.rows
        training.rows = []
        training.steps(iterator, min(3, STEPS - at))
        training.checkpoint.read(path).assert_consumed()
        training.rows = []
        training.steps(iterator, 1)
        later = training.checkpoint.write(str(tmp_path / "two"))
        before += training.rows
        training.rows = []
        training.rest(iterator)
        assert sorted(flat(before) + flat(training.rows)) == sorted(EVERY)
        assert int(training.total.numpy()) == sum(EVERY)
    with readers.connect(sidecar) as train:
        second = Training(train)
        iterator = iter(second.dataset(**options))
        second.checkpoint.read(later).assert_consumed()
        second.rest(iterator)
        assert sorted(flat(before) + flat(second.rows)) == sorted(EVERY)
        assert int(second.total.numpy()) == sum(EVERY)


def test_an_iterator_of_a_function_moves_to_the_restored_position(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    """As an argument, it moves. A captured iterator is an error."""
    with readers.connect(sidecar) as train:
        training = Training(train)
        iterator = iter(training.dataset())

        def add(iterator: Any) -> None:
            rows = next(iterator)["id"]
            training.total.assign_add(training.strategy.reduce("SUM", rows, axis=0))

        argument = tf.function(add)
        captured = tf.function(lambda: add(iterator))
        argument(iterator)
        captured()
        path = training.checkpoint.write(str(tmp_path / "one"))
        captured()
        training.checkpoint.read(path).assert_consumed()
        with pytest.raises(tf.errors.InvalidArgumentError, match="as an argument"):
            captured()
        for _ in range(STEPS - 2):
            argument(iterator)
        assert int(training.total.numpy()) == sum(EVERY)


def test_an_older_iterator_is_refused_and_does_not_count(sidecar: Sidecar, tmp_path: Path) -> None:
    with readers.connect(sidecar) as train:
        training = Training(train)
        dataset = training.dataset()
        older = iter(dataset)
        training.steps(older, 2)
        newer = iter(dataset)
        training.rows.clear()
        training.total.assign(0)
        training.steps(newer, 2)
        for _ in range(3):
            with pytest.raises(FencedError, match="use one iterator at a time"):
                next(older)

        @tf.function
        def taken(batches: Any) -> Any:
            return next(batches)

        with pytest.raises(tf.errors.InvalidArgumentError, match="use one iterator at a time"):
            taken(older)
        training.steps(newer, 2)
        path = training.checkpoint.write(str(tmp_path / "saved"))
        before = training.rows
    with readers.connect(sidecar) as train:
        training = Training(train)
        training.checkpoint.read(path).assert_consumed()
        training.rest(training.dataset())
        assert sorted(flat(before) + flat(training.rows)) == sorted(EVERY)


def test_an_iterator_that_has_ended_stays_at_its_end(sidecar: Sidecar) -> None:
    with readers.connect(sidecar) as train:
        dataset = Training(train).dataset()
        ended = iter(dataset)
        assert len(list(ended)) == STEPS
        next(iter(dataset))
        assert list(ended) == []


def test_numpy_batches_must_be_iterated_again_after_a_restore(sidecar: Sidecar) -> None:
    """A thread of the user may prefetch them."""
    with readers.connect(sidecar) as train:
        batches = train.numpy()
        rows = next(batches)["id"].tolist()
        position = train.position()
        next(batches)
        train.restore(position)
        with pytest.raises(PositionError, match="create a new iterator"):
            next(batches)
        rows += readers.ids(train.numpy())
    assert sorted(rows) == sorted(EVERY)


def test_an_iterator_in_another_thread_does_not_move(sidecar: Sidecar) -> None:
    """The thread may prefetch for a loop that has ended. The next iterator gets the position."""
    with readers.connect(sidecar) as train:
        training = Training(train)
        iterator = iter(training.dataset())
        training.steps(iterator, 2)
        position = train.position()
        training.steps(iterator, 1)
        train.restore(position)
        with ThreadPoolExecutor(1) as pool, pytest.raises(Exception, match="create a new iter"):
            pool.submit(lambda: list(iterator)).result(60)
        del training.rows[2:]
        training.rest(training.dataset())
        assert sorted(flat(training.rows)) == sorted(EVERY)


def test_a_plain_dataset_must_be_iterated_again_after_a_restore(sidecar: Sidecar) -> None:
    with readers.connect(sidecar) as train:
        dataset = train.dataset()
        iterator = iter(dataset)
        rows = next(iterator)["id"].numpy().tolist()
        position = train.position(batches=1)
        train.restore(position)
        with pytest.raises(Exception, match=r"create a new iterator"):
            list(iterator)
        rows += [int(row) for batch in dataset for row in batch["id"]]
    assert sorted(rows) == sorted(EVERY)


class BlockingState(tf.train.experimental.PythonState):
    """A part of a checkpoint that blocks its writer until `go` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def serialize(self) -> bytes:
        assert self.go.wait(60)
        return b""

    def deserialize(self, string_value: bytes) -> None:
        pass


def test_an_asynchronous_checkpoint_has_the_position_of_the_save_call(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    """Test the first and the second save, which TensorFlow copies in different ways."""
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for at in (1, 2):
        with readers.connect(sidecar) as train:
            blocking = BlockingState()
            training = Training(train, a=blocking)
            iterator = iter(training.dataset())
            for number in range(1, at + 1):
                training.steps(iterator, 3)
                if number == at:
                    blocking.go.clear()
                else:
                    blocking.go.set()
                path = training.checkpoint.save(str(tmp_path / f"{at}-{number}"), options=options)
                if number < at:
                    training.checkpoint.sync()
            before = [list(step) for step in training.rows]
            training.steps(iterator, 2)  # before it is written
            blocking.go.set()
            training.checkpoint.sync()
        with readers.connect(sidecar) as train:
            second = Training(train)
            second.checkpoint.restore(path).expect_partial()
            second.rest(second.dataset())
            assert sorted(flat(before + second.rows)) == sorted(EVERY)
            assert int(second.total.numpy()) == sum(EVERY)


@pytest.mark.parametrize("wrapping", ["alone", "strategy", "prefetch"])
def test_a_plain_dataset_needs_the_count_of_batches_to_save(
    sidecar: Sidecar, tmp_path: Path, wrapping: str
) -> None:
    """The position of the prefetching is never saved."""
    with readers.connect(sidecar) as train:
        plain = train.dataset()
        batches: Any = {
            "alone": lambda: plain,
            "strategy": lambda: tf.distribute.get_strategy().experimental_distribute_dataset(plain),
            "prefetch": lambda: plain.map(lambda batch: batch).prefetch(8),
        }[wrapping]()
        checkpoint = tf.train.Checkpoint(input=train.state)
        got: list[int] = []
        for step, batch in enumerate(batches, 1):
            got += batch["id"].numpy().tolist()
            if step == 5:
                with pytest.raises(PositionError, match=r"position\(batches=\.\.\.\)"):
                    checkpoint.write(str(tmp_path / "none"))
                with pytest.raises(PositionError, match="batches of this epoch were read"):
                    train.position(batches=STEPS + 1)
                with pytest.raises(PositionError, match="batches of this epoch were read"):
                    train.position(batches=-1)
                position = train.position(batches=step)
                break
    with readers.connect(sidecar) as train:
        train.restore(position)
        got += [int(row) for batch in train.dataset() for row in batch["id"]]
    assert sorted(got) == sorted(EVERY)
