"""Keras reads our input: `fit`, `evaluate`, `predict` and what they take beside a dataset."""

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
from testing.compat.row_count_metric import Rows
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.devices import CPUS

KERAS = Reference.KERAS
ROWS, BATCH = 100, 16
# As TensorFlow itself warns.
pytestmark = pytest.mark.filterwarnings(
    "ignore:In AUTO-mode",
    "ignore:DATA sharding",
    # Keras does so at the end of every dataset whose cardinality is unknown.
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
    """The sidecar of a second input."""
    return shared.add_sidecars({"validation": spec(partitions=2, numSplits=2)})[0]


def lines(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
    """(x, 3 x + 1) for x in [0, 1), in batches."""
    rows = tf.data.Dataset.range(ROWS).shard(ctx.num_input_pipelines, ctx.input_pipeline_id)
    x = rows.map(lambda row: tf.cast(row, tf.float32)[tf.newaxis] / ROWS)
    return x.map(lambda x: (x, 3 * x + 1)).batch(ctx.get_per_replica_batch_size(BATCH))


X = np.arange(ROWS, dtype=np.float32)[:, None] / ROWS


def build(strategy: tf.distribute.Strategy, weight: float = 0.0) -> keras.Model:
    """y = weight x, to be trained."""
    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
        model.layers[0].set_weights([np.array([[weight]]), np.zeros(1)])
        model.compile(optimizer=keras.optimizers.SGD(0.2), loss="mse", metrics=[Rows()])
    return model


@behaviour(
    KERAS,
    shows="`model.fit(dataset, epochs=...)`: every row once an epoch",
    call="`model.fit(train.distribute(strategy, dataset))`",
    note="Keras first looks at a batch of a model made in a strategy's scope: it gets one of zeros,"
    " and every epoch is trained on whole",
)
def test_fit(train: Input, strategy: Any) -> None:
    model = build(strategy)
    history = model.fit(train.distribute(strategy, lines), epochs=12, verbose=0).history
    assert history["rows"] == [ROWS] * 12
    assert history["loss"][-1] < history["loss"][0] / 20


@behaviour(
    KERAS,
    shows="`steps_per_epoch`: an epoch of some steps, also of a dataset without end",
    call="`model.fit(train.distribute(strategy, dataset), steps_per_epoch=...)`",
)
@pytest.mark.parametrize("endless", [False, True])
def test_steps_per_epoch(train: Input, strategy: Any, endless: bool) -> None:
    model = build(strategy)
    dataset = (lambda ctx: lines(ctx).repeat()) if endless else lines
    dist = train.distribute(strategy, dataset)
    history = model.fit(dist, epochs=4, steps_per_epoch=3, verbose=0).history
    # Keras goes on in the same iterator from epoch to epoch.
    rows = sum(history["rows"])
    assert rows == 4 * 3 * BATCH if endless else 3 * BATCH <= rows <= 4 * 3 * BATCH


@behaviour(
    KERAS,
    shows="`validation_data`, read after every epoch",
    call="`model.fit(train.distribute(...), validation_data=validation.distribute(...))`",
    note="An input of its own: one input has one iterator at a time",
)
def test_validation_data(train: Input, validation: Sidecar, strategy: Any) -> None:
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
    note="With `train.distribute(...)` Keras fails as with any `DistributedDataset`: it maps the"
    " weights over a `tf.data.Dataset`",
)
def test_class_weight(train: Input) -> None:
    strategy = tf.distribute.get_strategy()

    def two_classes(ctx: tf.distribute.InputContext) -> tf.data.Dataset:
        return lines(ctx).map(lambda x, y: (x, tf.cast(x[:, 0] >= 0.5, tf.int32)))

    with strategy.scope():
        model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
        loss = keras.losses.BinaryCrossentropy(from_logits=True)
        model.compile(optimizer=keras.optimizers.SGD(0.5), loss=loss)
    model.fit(train.dataset(two_classes), epochs=3, class_weight={0: 0.0, 1: 1.0}, verbose=0)
    # Class 0 weighs nothing, so class 1 is all that was learned.
    assert (model.predict(X, verbose=0) > 0).all()


@behaviour(
    KERAS,
    shows="`model.evaluate(dataset)`: over every row once",
    call="`model.evaluate(train.distribute(strategy, dataset))`",
)
def test_evaluate(train: Input, strategy: Any) -> None:
    model = build(strategy, weight=3.0)
    told = model.evaluate(train.distribute(strategy, lines), verbose=0, return_dict=True)
    assert told["rows"] == ROWS
    assert told["loss"] == pytest.approx(1.0)  # it lacks the constant


@behaviour(
    KERAS,
    shows="`model.predict(dataset)`: one output a row, put into order by an index",
    call="`model.predict(train.distribute(strategy, dataset))`",
)
def test_predict(train: Input, strategy: Any) -> None:
    model = build(strategy, weight=ROWS)
    found = model.predict(
        train.distribute(strategy, lambda ctx: lines(ctx).map(lambda x, y: (x,))), verbose=0
    )
    np.testing.assert_allclose(np.sort(found[:, 0]), np.arange(ROWS), atol=1e-3)


@behaviour(
    KERAS,
    shows="`BackupAndRestore`: an interrupted `fit` goes on",
    call="`distributed_input.keras.BackupAndRestore(train, folder, save_freq=...)`",
    note="Within the epoch, on the rows that are left of it",
)
def test_backup_and_restore(train: Input, tmp_path: Path) -> None:
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
    # Five steps were trained on and saved; two more are left of the first epoch.
    assert fit().history["rows"] == [ROWS - 5 * BATCH, ROWS]
