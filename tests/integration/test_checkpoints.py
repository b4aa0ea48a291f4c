"""`tf.train.Checkpoint` and `CheckpointManager`: what is saved is what the loop has consumed.

The weights of these tests are the sum of the rows that they were trained on, saved beside the
position: what a position and weights of different steps would lose or repeat, the sum tells.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import PositionError
from distributed_input.client.input import Input
from testing.integration import readers
from testing.integration.checkpointing_trainer import training_step
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS

# As TensorFlow itself warns where a dataset is iterated within a function.
pytestmark = pytest.mark.filterwarnings("ignore:To make it possible to preserve tf.data options")

ROWS, BATCH = 150, 8
STEPS = -(-ROWS // BATCH)
EVERY = set(range(ROWS))
RESOURCE: dict[str, Any] = {"partitions": 4, "numSplits": 12, "globalBatchSize": BATCH}


class Training:
    """A model, its checkpoint, and the rows that it was trained on in this life, step by step."""

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


def goes_on(sidecar: Sidecar, path: str, before: list[list[int]]) -> None:
    """In another life: the rest of the epoch, and nothing else, as the weights tell too."""
    with readers.connect(sidecar) as train:
        life = Training(train)
        life.checkpoint.read(path).assert_consumed()
        life.rest(life.dataset())
        assert sorted(flat(before) + flat(life.rows)) == sorted(EVERY)
        assert int(life.total.numpy()) == sum(EVERY)


PREFETCHED = {"experimental_fetch_to_device": True, "experimental_per_replica_buffer_size": 4}


@pytest.mark.parametrize("options", [{}, PREFETCHED], ids=["", "prefetched to devices"])
@pytest.mark.parametrize("at", [1, 7, STEPS - 1, STEPS])
def test_a_loop_goes_on_from_its_checkpoint(
    sidecar: Sidecar, tmp_path: Path, at: int, options: dict[str, Any]
) -> None:
    """In its middle, before its last step, and where that was taken but not seen to be the last."""
    with readers.connect(sidecar) as train:
        life = Training(train)
        life.steps(iter(life.dataset(**options)), at)
        path = life.checkpoint.write(str(tmp_path / "one"))
    goes_on(sidecar, path, life.rows)


def test_steps_within_a_function_are_counted(sidecar: Sidecar, tmp_path: Path) -> None:
    """Several steps of each call, whatever was prefetched to the devices for the next."""
    with readers.connect(sidecar) as train:
        life = Training(train)

        @tf.function
        def five(iterator: Any) -> Any:
            rows = tf.TensorArray(tf.int64, 5, infer_shape=False)
            for at in tf.range(5):
                batch = next(iterator)["id"]
                life.total.assign_add(life.strategy.reduce("SUM", batch, axis=0))
                local = life.strategy.experimental_local_results(batch)
                rows = rows.write(at, tf.concat(local, 0))
            return rows.concat()

        iterator = iter(life.dataset(**PREFETCHED))
        life.rows += [five(iterator).numpy().tolist(), five(iterator).numpy().tolist()]
        path = life.checkpoint.write(str(tmp_path / "one"))
    assert len(flat(life.rows)) == 10 * BATCH
    goes_on(sidecar, path, life.rows)


def test_an_epoch_within_a_function_is_over_behind_it(sidecar: Sidecar, tmp_path: Path) -> None:
    with readers.connect(sidecar) as train:
        life = Training(train)

        @tf.function
        def epoch(dataset: Any) -> None:
            for batch in dataset:
                life.total.assign_add(life.strategy.reduce("SUM", batch["id"], axis=0))

        epoch(life.dataset())
        assert int(life.total.numpy()) == sum(EVERY)
        path = life.checkpoint.write(str(tmp_path / "one"))
    with readers.connect(sidecar) as train:
        second = Training(train)
        second.checkpoint.read(path).assert_consumed()
        second.rest(second.dataset())
        assert sorted(flat(second.rows)) == sorted(EVERY)
        assert int(second.total.numpy()) == 2 * sum(EVERY)


def test_a_manager_keeps_some_and_restores_any_of_them(sidecar: Sidecar, tmp_path: Path) -> None:
    """Also within one life: `iter` behind a restore goes back to where the checkpoint was made."""
    saved: dict[str, int] = {}
    with readers.connect(sidecar) as train:
        life = Training(train)
        manager = tf.train.CheckpointManager(life.checkpoint, str(tmp_path), max_to_keep=2)
        assert manager.restore_or_initialize() is None
        iterator = iter(life.dataset())
        for _ in range(4):
            life.steps(iterator, 3)
            saved[manager.save()] = len(life.rows)
        kept = manager.checkpoints
        assert [saved[path] for path in kept] == [9, 12]
        life.checkpoint.restore(kept[0])
        del life.rows[9:]
        life.steps(iter(life.dataset()), 2)
        assert manager.save()
    with readers.connect(sidecar) as train:
        second = Training(train)
        manager = tf.train.CheckpointManager(second.checkpoint, str(tmp_path), max_to_keep=2)
        assert manager.restore_or_initialize() == manager.latest_checkpoint
        second.rest(second.dataset())
        assert len(life.rows) == 11
        assert sorted(flat(life.rows + second.rows)) == sorted(EVERY)
        assert int(second.total.numpy()) == sum(EVERY)


class Held(tf.train.experimental.PythonState):
    """A part of a checkpoint that keeps whoever writes it waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.go = threading.Event()

    def serialize(self) -> bytes:
        assert self.go.wait(60)
        return b""

    def deserialize(self, string_value: bytes) -> None:
        pass


def test_an_asynchronous_checkpoint_holds_what_was_consumed_when_it_was_asked_for(
    sidecar: Sidecar, tmp_path: Path
) -> None:
    """The first one and the second, which TensorFlow copies in other ways, written later on."""
    options = tf.train.CheckpointOptions(experimental_enable_async_checkpoint=True)
    for at in (1, 2):
        with readers.connect(sidecar) as train:
            held = Held()
            life = Training(train, a=held)
            iterator = iter(life.dataset())
            for number in range(1, at + 1):
                life.steps(iterator, 3)
                if number == at:
                    held.go.clear()
                else:
                    held.go.set()
                path = life.checkpoint.save(str(tmp_path / f"{at}-{number}"), options=options)
                if number < at:
                    life.checkpoint.sync()
            before = [list(step) for step in life.rows]
            life.steps(iterator, 2)  # while it waits to be written
            held.go.set()
            life.checkpoint.sync()
        with readers.connect(sidecar) as train:
            second = Training(train)
            second.checkpoint.restore(path).expect_partial()
            second.rest(second.dataset())
            assert sorted(flat(before + second.rows)) == sorted(EVERY)
            assert int(second.total.numpy()) == sum(EVERY)


@pytest.mark.parametrize("behind", ["alone", "strategy", "prefetch"])
def test_a_plain_dataset_is_saved_by_the_count_of_the_loop_or_not_at_all(
    sidecar: Sidecar, tmp_path: Path, behind: str
) -> None:
    """Rather than where the prefetching has come to."""
    with readers.connect(sidecar) as train:
        plain = train.dataset()
        batches: Any = {
            "alone": lambda: plain,
            "strategy": lambda: tf.distribute.get_strategy().experimental_distribute_dataset(plain),
            "prefetch": lambda: plain.map(lambda batch: batch).prefetch(8),
        }[behind]()
        checkpoint = tf.train.Checkpoint(input=train.state)
        got: list[int] = []
        for step, batch in enumerate(batches, 1):
            got += batch["id"].numpy().tolist()
            if step == 5:
                with pytest.raises(PositionError, match=r"position\(batches=\.\.\.\)"):
                    checkpoint.write(str(tmp_path / "none"))
                position = train.position(batches=step)
                break
    with readers.connect(sidecar) as train:
        train.restore(position)
        got += [int(row) for batch in train.dataset() for row in batch["id"]]
    assert sorted(got) == sorted(EVERY)
