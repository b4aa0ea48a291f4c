"""Keras's `fit` with validation data and backups, on the backend in KERAS_BACKEND."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

os.environ["KERAS_BACKEND"] = sys.argv[1]

import keras
import numpy as np

import distributed_input
from testing.frameworks.resumption import EPOCHS, ROWS, Ledger, check


class Recording(keras.Model):
    """One layer, and a ledger of the rows. Its metrics are not built before `fit`."""

    def __init__(self, ledger: Ledger) -> None:
        super().__init__()
        self._layer = keras.layers.Dense(1)
        self._ledger = ledger

    def call(self, numbers: Any) -> Any:
        """Return the outputs."""
        return self._layer(numbers / ROWS)

    def train_step(self, *arguments: Any) -> Any:
        """Train on a batch, which is the last argument on each backend."""
        numbers = np.asarray(keras.ops.convert_to_numpy(arguments[-1][0]))
        self._ledger.add(numbers[:, 0].astype(int))
        return super().train_step(*arguments)


def train(data: distributed_input.Input, folder: Path, resume: bool, ledger: Ledger) -> None:
    """Train with a backup after the last step before the end."""
    backup = distributed_input.keras.BackupAndRestore(
        data, str(folder / "backup"), save_freq=ledger.stop or 1000
    )
    model = Recording(ledger)
    model(np.zeros([1, 8], np.float32))  # builds it, which the callback needs on TensorFlow
    model.compile("sgd", "mse", metrics=["mae"], run_eagerly=True)
    with distributed_input.connect("validation_labeled", timeout=20) as validation:
        history = model.fit(
            data.keras(),
            validation_data=validation.keras(),
            epochs=EPOCHS,
            shuffle=False,
            verbose=0,
            callbacks=[backup],
        )
        assert len(history.history["val_mae"]) >= 1
        assert len(model.predict(validation.keras(), verbose=0)) == ROWS


if __name__ == "__main__":
    check(train, "labeled")
