"""Keras's `fit` reads whole epochs, each row once, also behind a backup in the middle of one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

from distributed_input import keras as ours
from distributed_input.api.errors import PositionError
from distributed_input.client.input import Input
from testing.integration import reading
from testing.integration.cluster import Cluster, Sidecar, spec

# Keras says so at the end of the first epoch of any dataset whose length is not known before.
pytestmark = pytest.mark.filterwarnings("ignore:Your input ran out of data")

ROWS, BATCH = 44, 8
STEPS = -(-ROWS // BATCH)


class Counting(keras.Model):
    """Notes how often it was trained on each row."""

    def __init__(self) -> None:
        super().__init__()
        self.dense = keras.layers.Dense(1)
        self.seen = tf.Variable(tf.zeros([ROWS], tf.int32), trainable=False)

    def call(self, x: Any) -> Any:
        return self.dense(x)

    def train_step(self, data: Any) -> Any:
        self.seen.assign_add(
            tf.math.bincount(tf.cast(data[0][:, 0], tf.int32), minlength=ROWS, maxlength=ROWS)
        )
        return super().train_step(data)


class Killed(Exception):
    """What a trainer's death is here."""


class Dies(keras.callbacks.Callback):
    """After so many batches."""

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


def model_of(strategy: tf.distribute.Strategy) -> Counting:
    with strategy.scope():
        made = Counting()
        made.compile(optimizer="sgd", loss="mse")
        made(tf.zeros([1, 1]))
    return made


def dataset_of(train: Input, strategy: tf.distribute.Strategy) -> Any:
    # Small numbers: nothing here is to be learnt.
    x = np.arange(ROWS, dtype=np.float32)[:, None]
    return train.distribute(strategy, sharded(x, np.zeros_like(x)))


def sharded(*arrays: Any) -> Callable[[tf.distribute.InputContext], tf.data.Dataset]:
    def dataset_fn(context: tf.distribute.InputContext) -> tf.data.Dataset:
        rows = tf.data.Dataset.from_tensor_slices(arrays)
        rows = rows.shard(context.num_input_pipelines, context.input_pipeline_id)
        return rows.batch(context.get_per_replica_batch_size(BATCH))

    return dataset_fn


def seen(model: Counting) -> set[int]:
    """How often rows were trained on; one number where all were alike."""
    return set(model.seen.numpy().tolist())


def test_fit_reads_every_epoch_whole(sidecar: Sidecar, strategy: tf.distribute.Strategy) -> None:
    """All three that there are: none is lost to `fit`'s look at the shapes."""
    model = model_of(strategy)
    with reading.connect(sidecar) as train:
        model.fit(dataset_of(train, strategy), epochs=3, verbose=0)
    assert seen(model) == {3}


@pytest.mark.parametrize("deaths", [2, STEPS, STEPS + 3])
def test_a_fit_goes_on_behind_its_backup(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path, deaths: int
) -> None:
    """Saved with every batch: the rows of all three epochs come once over both lives."""
    first, second = model_of(strategy), model_of(strategy)
    with reading.connect(sidecar) as train:
        backup = ours.BackupAndRestore(train, str(tmp_path), save_freq=1)
        with pytest.raises(Killed):
            first.fit(
                dataset_of(train, strategy),
                epochs=3,
                verbose=0,
                callbacks=[backup, Dies(deaths)],
            )
    with reading.connect(sidecar) as train:
        backup = ours.BackupAndRestore(train, str(tmp_path), save_freq=1)
        second.fit(dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[backup])
    assert set((first.seen.numpy() + second.seen.numpy()).tolist()) == {3}


def test_a_backup_at_an_epochs_end_goes_on_with_the_next(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path
) -> None:
    first, second = model_of(strategy), model_of(strategy)
    with reading.connect(sidecar) as train:
        backup = ours.BackupAndRestore(train, str(tmp_path), delete_checkpoint=False)
        first.fit(dataset_of(train, strategy), epochs=1, verbose=0, callbacks=[backup])
    with reading.connect(sidecar) as train:
        backup = ours.BackupAndRestore(train, str(tmp_path))
        second.fit(dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[backup])
    assert seen(first) == {1}
    assert seen(second) == {2}


def test_what_a_checkpoint_restored_by_hand_left_is_fitted_first(
    sidecar: Sidecar, strategy: tf.distribute.Strategy, tmp_path: Path
) -> None:
    first, second = model_of(strategy), model_of(strategy)
    path = str(tmp_path / "at-{batch}.weights.h5")
    with reading.connect(sidecar) as train:
        saves = ours.ModelCheckpoint(train, path, save_weights_only=True, save_freq=2)
        with pytest.raises(Killed):
            first.fit(dataset_of(train, strategy), epochs=3, verbose=0, callbacks=[saves, Dies(4)])
    (newest,) = sorted(tmp_path.glob("*.weights.h5"))[-1:]
    with reading.connect(sidecar) as train:
        dataset = dataset_of(train, strategy)
        train.restore(ours.read_position(str(newest)))
        second.fit(dataset, epochs=3, verbose=0)
    assert set((first.seen.numpy() + second.seen.numpy()).tolist()) == {3}


def test_a_crash_between_the_weights_and_their_position_loses_nothing(tmp_path: Path) -> None:
    weights = tmp_path / "latest.weights.h5"
    weights.write_bytes(b"old")
    ours.write_position(str(weights), b"where the old ones were")
    ours.announce_position(str(weights), b"where the new ones are")
    assert ours.read_position(str(weights)) == b"where the old ones were"
    weights.write_bytes(b"new")
    assert ours.read_position(str(weights)) == b"where the new ones are"
    ours.write_position(str(weights), b"where the new ones are")
    assert "next" not in json.loads((tmp_path / "latest.weights.h5.input.json").read_text())
    weights.write_bytes(b"of somebody else")
    with pytest.raises(PositionError, match="other weights"):
        ours.read_position(str(weights))


def test_nobody_counts_for_a_plain_dataset(sidecar: Sidecar) -> None:
    """Rather than a position that is ahead of the loop."""
    with reading.connect(sidecar) as train:
        dataset = train.dataset(sharded(np.arange(ROWS)))
        got = [int(row) for row in next(iter(dataset))[0]]
        checkpoint = tf.train.Checkpoint(input=train.state)
        with pytest.raises(PositionError, match="is unknown"):
            checkpoint.write("unused")
        train.restore(train.position(batches=1))
        got += [int(row) for batch in dataset for row in batch[0]]
    assert sorted(got) == list(range(ROWS))
