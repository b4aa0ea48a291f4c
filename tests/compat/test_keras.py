"""Keras reads DistributedInput: `fit`, `evaluate`, `predict` and their arguments."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import keras
import numpy as np
import pytest
import tensorflow as tf

import distributed_input.keras
from distributed_input import Input
from testing.compat.behaviour import Reference, behaviour
from testing.compat.row_count_metric import RowCount
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS

KERAS = Reference.KERAS
ROWS, BATCH = 100, 16
# TensorFlow warns in the same way.
pytestmark = pytest.mark.filterwarnings(
    "ignore:In AUTO-mode",
    "ignore:DATA sharding",
    # Keras warns at the end of every dataset of unknown cardinality.
    "ignore:Your input ran out of data",
)
STRATEGIES = {
    "default": tf.distribute.get_strategy,
    "mirrored": lambda: tf.distribute.MirroredStrategy(CPUS),
}


@pytest.fixture(params=STRATEGIES)
def strategy(request: pytest.FixtureRequest) -> tf.distribute.Strategy:
    return STRATEGIES[request.param]()


@pytest.fixture(scope="module")
def validation(shared: Cluster) -> Sidecar:
    """Start the sidecar of a second input."""
    return shared.add_sidecars({"validation": spec(partitions=2, numSplits=2)})[0]


def lines(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """Return (x, 3 x + 1) for x in [0, 1), in batches."""
    rows = tf.data.Dataset.range(ROWS).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    x = rows.map(lambda row: tf.cast(row, tf.float32)[tf.newaxis] / ROWS)
    return x.map(lambda x: (x, 3 * x + 1)).batch(ctx.get_per_replica_batch_size(BATCH))


X = np.arange(ROWS, dtype=np.float32)[:, None] / ROWS


def build(strategy: tf.distribute.Strategy, weight: float = 0.0) -> keras.Model:
    """Return a model of y = weight x to train."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
        model.layers[0].set_weights([np.array([[weight]]), np.zeros(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.2), loss="mse", metrics=[RowCount()])
    return model


@behaviour(
    KERAS,
    shows="`model.fit(dataset, epochs=...)`: every row once per epoch",
    call="`model.fit(train.distribute(strategy, dataset))`",
    note="Keras first reads one batch for the shapes: it gets zeros, and every epoch is complete",
)
def test_fit_reads_every_row_once_per_epoch(train: Input, strategy: Any) -> None:
    model = build(strategy)
    history = model.fit(train.distribute(strategy, lines), epochs=12, verbose=0).history
    assert history["rows"] == [ROWS] * 12
    assert history["loss"][-1] < history["loss"][0] / 20


@behaviour(
    KERAS,
    shows="`steps_per_epoch`: an epoch of this number of steps, also of an endless dataset",
    call="`model.fit(train.distribute(strategy, dataset), steps_per_epoch=...)`",
)
@pytest.mark.parametrize("endless", [False, True])
def test_steps_per_epoch_limits_an_epoch(train: Input, strategy: Any, endless: bool) -> None:
    model = build(strategy)
    dataset = (lambda ctx: lines(ctx).repeat()) if endless else lines
    dist = train.distribute(strategy, dataset)
    history = model.fit(dist, epochs=4, steps_per_epoch=3, verbose=0).history
    # Keras uses the same iterator for all epochs.
    rows = sum(history["rows"])
    assert rows == 4 * 3 * BATCH if endless else 3 * BATCH <= rows <= 4 * 3 * BATCH


@behaviour(
    KERAS,
    shows="`validation_data`, read after every epoch",
    call="`model.fit(train.distribute(...), validation_data=validation.distribute(...))`",
    note="A second input: one input has one iterator at a time",
)
def test_validation_data_is_read_after_every_epoch(
    train: Input, validation: Sidecar, strategy: Any
) -> None:
    model = build(strategy)
    with readers.connect(validation, "validation") as held_out:
        history = model.fit(
            train.distribute(strategy, lines),
            validation_data=held_out.distribute(strategy, lines),
            epochs=3,
            verbose=0,
        ).history
    assert history["val_rows"] == history["rows"] == [ROWS] * 3
    assert history["val_loss"][-1] < history["val_loss"][0]


@behaviour(
    KERAS,
    shows="`class_weight`",
    call="`model.fit(train.dataset(dataset), class_weight=...)`",
    note="With `train.distribute(...)` Keras fails, as with every `DistributedDataset`: it needs a"
    " `tf.data.Dataset` for the weights",
)
def test_class_weight_scales_the_loss(train: Input) -> None:
    strategy = tf.distribute.get_strategy()

    def two_classes(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        return lines(ctx).map(lambda x, y: (x, tf.cast(x[:, 0] >= 0.5, tf.int32)))

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.5), loss=loss)
    model.fit(train.dataset(two_classes), epochs=3, class_weight={0: 0.0, 1: 1.0}, verbose=0)
    # Class 0 has weight 0, so the model learned only class 1.
    assert (model.predict(X, verbose=0) > 0).all()


@behaviour(
    KERAS,
    shows="`model.evaluate(dataset)`: over every row once",
    call="`model.evaluate(train.distribute(strategy, dataset))`",
)
def test_evaluate_reads_every_row_once(train: Input, strategy: Any) -> None:
    model = build(strategy, weight=3.0)
    results = model.evaluate(train.distribute(strategy, lines), verbose=0, return_dict=True)
    assert results["rows"] == ROWS
    assert results["loss"] == pytest.approx(1.0)  # the model lacks the constant


@behaviour(
    KERAS,
    shows="`model.predict(dataset)`: one output per row, sorted by an index",
    call="`model.predict(train.distribute(strategy, dataset))`",
)
def test_predict_returns_one_output_per_row(train: Input, strategy: Any) -> None:
    model = build(strategy, weight=ROWS)
    found = model.predict(
        train.distribute(strategy, lambda ctx: lines(ctx).map(lambda x, y: (x,))), verbose=0
    )
    np.testing.assert_allclose(np.sort(found[:, 0]), np.arange(ROWS), atol=1e-3)


@behaviour(
    KERAS,
    shows="`BackupAndRestore`: an interrupted `fit` continues",
    call="`distributed_input.keras.BackupAndRestore(train, folder, save_freq=...)`",
    note="It continues within the epoch, with its remaining rows",
)
def test_an_interrupted_fit_continues_within_the_epoch(train: Input, tmp_path: Path) -> None:
    strategy = tf.distribute.get_strategy()

    class Interruption(keras.callbacks.Callback):
        def on_train_batch_end(self, batch: int, logs: Any = None) -> None:
            if batch == 4:
                raise KeyboardInterrupt

    def fit(*callbacks: Any) -> Any:
        backup = distributed_input.keras.BackupAndRestore(
            train, str(tmp_path), save_freq=1, delete_checkpoint=False
        )
        dist = train.distribute(strategy, lines)
        return build(strategy).fit(dist, epochs=2, callbacks=[backup, *callbacks], verbose=0)

    with pytest.raises(KeyboardInterrupt):
        fit(Interruption())
    # Five steps were trained and saved; two steps of the first epoch remain.
    assert fit().history["rows"] == [ROWS - 5 * BATCH, ROWS]
