"""Keras's `fit` reads whole epochs, each row once, also after a restore in the middle of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from distributed_input import keras as di_keras
from distributed_input.api.errors import PositionError
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec

# Keras warns after the first epoch of every dataset of unknown length.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")

ROWS, BATCH = 44, 8
STEPS = -(-ROWS // BATCH)


class CountingModel(keras.Model):
    """A model that counts how often it was trained on each row."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.training_counts = tf.Variable(tf.zeros([ROWS], tf.int32), trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.training_counts.assign_add(
            tf.math.bincount(tf.cast(data[0][:, 0], tf.int32), minlength=ROWS, maxlength=ROWS)
        )
        return super().train_step(data)


class Killed(Exception):
    """Represents the death of a trainer."""


class KillAfter(keras.callbacks.Callback):
    """A callback that raises `Killed` after this number of batches."""

    def __init__(self, batches: int) -> None:
        super().__init__()
        self._left = batches

    def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
        self._left -= 1
        if not self._left:
            raise Killed


@pytest.fixture
def sidecar(cluster: Cluster, request: pytest.FixtureRequest) -> Sidecar:
    name = f"fit-{abs(hash(request.node.name)) % 10_000}"
    limits: dict[str, Any] = {"epochs": 3}
    (made,) = cluster.add_sidecars({name: spec("", partitions=4, numSplits=8, **limits)})
    return made


STRATEGIES = {
    "one device": lambda: tf.distribute.OneDeviceStrategy("CPU:0"),
    "default": tf.distribute.get_strategy,
}


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return STRATEGIES[request.param]()


def model_of(strategy: tf.distribute.Strategy) -> CountingModel:
    with strategy.scope():
        made = CountingModel()
        made.compile(optimizer="sgd", loss="mse")
        made(tf.zeros([1, 1]))
    return made


def dataset_of(train: Input, strategy: tf.distribute.Strategy) -> Any:
    # Small numbers, because the model does not need to learn.
    x = np.arange(ROWS, dtype=np.float32)[:, None]
    return train.distribute(strategy, sharded(x, np.zeros_like(x)))


def sharded(*arrays: Any) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(arrays)
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        return rows.batch(context.get_per_replica_batch_size(BATCH))

    return dataset_fn


def training_counts(model: CountingModel) -> set[int]:
    """Return how often rows were trained on: one number if all rows are equal."""
    return set(model.training_counts.numpy().tolist())


def test_fit_reads_every_epoch_completely(
    sidecar: Sidecar, strategy: tf.distribute.Strategy
) -> None:
    """`fit` looks at the shapes first and loses no epoch by that."""
    model = model_of(strategy)
    with readers.connect(sidecar) as train:
        model.fit(dataset_of(train, strategy), epochs=3, verbose=0)
    assert training_counts(model) == {3}


class SumModel(keras.Model):
    """A model of sequences of different lengths, without sample weights."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.trained = tf.Variable(0.0, trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(tf.reduce_sum(x["ids"], axis=1, keepdims=True))

    def train_step(self, data: Any) -> Any:
        x, _, weights = data
        assert weights is None
        self.trained.assign_add(tf.reduce_sum(x["ids"]))
        return super().train_step(data)


def test_fit_takes_ragged_inputs_and_no_weights(
    sidecar: Sidecar, strategy: tf.distribute.Strategy
) -> None:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        rows = tf.data.Dataset.range(ROWS)
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        rows = rows.map(lambda row: ({"ids": tf.ones([row % 3 + 1])}, tf.zeros([1])))
        batches = rows.ragged_batch(context.get_per_replica_batch_size(BATCH))
        return batches.map(lambda x, y: (x, y, None))

    with strategy.scope():
        model = SumModel()
        model.compile(optimizer="sgd", loss="mse")
    with readers.connect(sidecar) as train:
        model.fit(train.distribute(strategy, dataset_fn), epochs=3, verbose=0)
    assert float(model.trained) == 3 * sum(row % 3 + 1 for row in range(ROWS))


@pytest.mark.parametrize("batches", [2, STEPS, STEPS + 3])
def test_fit_continues_after_its_backup(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path, batches: int
) -> None:
    """With a save after every batch, both runs together read each row of three epochs once."""
    first, second = model_of(strategy), model_of(strategy)
    with readers.connect(sidecar) as train:
        backup = di_keras.BackupAndRestore(train, str(tmp_path), save_freq=1)
        with pytest.raises(Killed):
            first.fit(
                dataset_of(train, strategy),
                epochs=3,
                verbose=0,
                callbacks=[backup, KillAfter(batches)],
            )
    with readers.connect(sidecar) as train:
        backup = di_keras.BackupAndRestore(train, str(tmp_path), save_freq=1)
        second.fit(dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[backup])
    assert set((first.training_counts.numpy() + second.training_counts.numpy()).tolist()) == {3}


def test_a_backup_at_the_end_of_an_epoch_continues_with_the_next_epoch(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path
) -> None:
    first, second = model_of(strategy), model_of(strategy)
    with readers.connect(sidecar) as train:
        backup = di_keras.BackupAndRestore(train, str(tmp_path), delete_checkpoint=False)
        first.fit(dataset_of(train, strategy), epochs=1, verbose=0, callbacks=[backup])
    with readers.connect(sidecar) as train:
        backup = di_keras.BackupAndRestore(train, str(tmp_path))
        second.fit(dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[backup])
    assert training_counts(first) == {1}
    assert training_counts(second) == {2}


def test_fit_reads_the_rest_of_the_epoch_after_a_manual_restore(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path
) -> None:
    first, second = model_of(strategy), model_of(strategy)
    path = str(tmp_path / "at-{batch}.weights.h5")
    with readers.connect(sidecar) as train:
        saves = di_keras.ModelCheckpoint(train, path, save_weights_only=True, save_freq=2)
        with pytest.raises(Killed):
            first.fit(
                dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[saves, KillAfter(4)]
            )
    (newest,) = sorted(tmp_path.glob("*.weights.h5"))[-1:]
    with readers.connect(sidecar) as train:
        dataset = dataset_of(train, strategy)
        train.restore(di_keras.read_position(str(newest)))
        second.fit(dataset, epochs=3, verbose=0)
    assert set((first.training_counts.numpy() + second.training_counts.numpy()).tolist()) == {3}


def test_a_crash_between_writing_weights_and_position_keeps_both_consistent(tmp_path: Path) -> None:
    weights = tmp_path / "latest.weights.h5"
    weights.write_bytes(b"old")
    di_keras.write_position(str(weights), b"old position")
    di_keras.announce_position(str(weights), b"new position")
    assert di_keras.read_position(str(weights)) == b"old position"
    weights.write_bytes(b"new")
    assert di_keras.read_position(str(weights)) == b"new position"
    di_keras.write_position(str(weights), b"new position")
    assert "next" not in json.loads((tmp_path / "latest.weights.h5.input.json").read_text())
    weights.write_bytes(b"other weights")
    with pytest.raises(PositionError, match="other weights"):
        di_keras.read_position(str(weights))


def test_a_plain_dataset_needs_the_count_of_batches_to_save(sidecar: Sidecar) -> None:
    """Without the count, the position would be ahead of the loop."""
    with readers.connect(sidecar) as train:
        dataset = train.dataset(sharded(np.arange(ROWS)))
        got = [int(row) for row in next(iter(dataset))[0]]
        checkpoint = tf.train.Checkpoint(input=train.state)
        with pytest.raises(PositionError, match="is unknown"):
            checkpoint.write("unused")
        train.restore(train.position(batches=1))
        got += [int(row) for batch in dataset for row in batch[0]]
    assert sorted(got) == list(range(ROWS))


def position_file(tmp_path: Path) -> tuple[str, Path]:
    """Return the path of some weights, and that of the file with their position."""
    weights = tmp_path / "latest.weights.h5"
    weights.write_bytes(b"weights")
    return str(weights), Path(f"{weights}.input.json")


@pytest.mark.parametrize(
    "text",
    [
        *("", "{}", "[]", "3", '{"position": 3}', '{"next": "a"}', '{"weights": [], "next": {}}'),
        *('{"position": "é"}', '{"weights": "a", "next": 3}', '"\\ud800"', "[" * 100_000),
    ],
)
def test_a_damaged_file_of_a_position_is_refused_and_replaced(tmp_path: Path, text: str) -> None:
    weights, path = position_file(tmp_path)
    path.write_text(text)
    with pytest.raises(PositionError, match=r"latest\.weights\.h5\.input\.json is damaged"):
        di_keras.read_position(weights)
    di_keras.announce_position(weights, b"next position")
    assert di_keras.read_position(weights) == b"next position"


def test_weights_without_a_file_of_positions_were_saved_without_the_callback(
    tmp_path: Path,
) -> None:
    weights, path = position_file(tmp_path)
    with pytest.raises(PositionError, match="saved without this callback"):
        di_keras.read_position(weights)
    path.mkdir()
    with pytest.raises(PositionError, match="cannot be read"):
        di_keras.read_position(weights)


@pytest.mark.parametrize("damage", [None, 3, "é", "a"])
def test_only_the_position_that_is_used_must_be_valid(tmp_path: Path, damage: Any) -> None:
    weights, path = position_file(tmp_path)
    di_keras.write_position(weights, b"position")
    di_keras.announce_position(weights, b"next position")
    content = json.loads(path.read_text())
    path.write_text(json.dumps({**content, "next": damage}))
    assert di_keras.read_position(weights) == b"position"
    path.write_text(json.dumps({**content, "position": damage}))
    with pytest.raises(PositionError, match="is damaged"):  # the next one is of other weights
        di_keras.read_position(weights)
    Path(weights).write_bytes(b"next weights")
    assert di_keras.read_position(weights) == b"next position"
