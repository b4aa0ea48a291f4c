"""A Keras metric that counts rows."""

from __future__ import annotations

from typing import Any

import keras
import tensorflow as tf


class RowCount(keras.metrics.Metric):
    """Number of rows that were trained on or evaluated."""

    def __init__(self) -> None:
        super().__init__(name="rows")
        self.count = self.add_variable((), "zeros", name="count")

    def update_state(self, y_true: Any, y_pred: Any, sample_weight: Any = None) -> None:
        """Add the rows of a batch."""
        self.count.assign_add(tf.cast(tf.shape(y_true)[0], tf.float32))

    def result(self) -> Any:
        """Return the number of rows since the epoch began."""
        return self.count
