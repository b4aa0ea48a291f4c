"""An input as Keras's `fit`, `evaluate` and `predict` take data on the JAX and torch backends."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
from keras.src.trainers.data_adapters.data_adapter import DataAdapter

from distributed_input.api.errors import ConfigError
from distributed_input.rows.elements import numpy_dtype
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks import pytorch
from distributed_input.trainer.frameworks.keras_epochs import calling_epoch_loop
from distributed_input.trainer.frameworks.lazy_epoch import LazyEpoch


class KerasInput(DataAdapter):
    """The batches of an open job; see `Input.keras`.

    Args:
        consumer: a consumer whose job is open.
        epoch: begins the next epoch of batches that a function makes of units.
    """

    def __init__(self, consumer: Consumer, epoch: Callable[[Any], Iterator[Any]]) -> None:
        for leaf in consumer.spec.leaves:
            if leaf.is_string or leaf.kind != "dense":
                raise ConfigError(
                    f"{leaf.label}: Keras takes dense numbers on this backend. Remove or pad it in "
                    "a map of the dataset"
                )
        self._consumer = consumer
        self._epoch = epoch

    def get_numpy_iterator(self) -> Iterable[Any]:
        """Return the next epoch as numpy arrays."""
        loop = calling_epoch_loop()
        if loop is not None and loop.building:
            return iter([self._zeros()])
        if loop is not None:
            loop.read_whole_epochs()
        return LazyEpoch(lambda _: self._epoch(self._consumer.arrays))

    get_jax_iterator = get_numpy_iterator

    def get_torch_dataloader(self) -> Iterable[Any]:
        """Return the next epoch as tensors."""
        torch = pytorch.import_torch()
        loop = calling_epoch_loop()
        if loop is not None and loop.building:
            return iter([self._zeros(torch)])
        if loop is not None:
            loop.read_whole_epochs()
        return LazyEpoch(lambda _: self._epoch(pytorch.reader(torch, self._consumer)))

    def _zeros(self, torch: Any = None) -> Any:
        """Return a batch of zeros, as tensors if `torch` is given."""
        spec, rows = self._consumer.spec, self._consumer.opened.unit_rows
        shapes = [tuple(size or 1 for size in leaf.shape) for leaf in spec.leaves]
        zeros = [
            np.zeros((rows, *shape) if rows else shape, numpy_dtype(leaf.dtype))
            for leaf, shape in zip(spec.leaves, shapes, strict=True)
        ]
        if torch is not None:
            zeros = [
                pytorch.tensor(torch, leaf.dtype, zero)
                for leaf, zero in zip(spec.leaves, zeros, strict=True)
            ]
        return spec.unflatten(zeros)

    @property
    def num_batches(self) -> None:
        """The number of batches is not known."""
        return

    @property
    def batch_size(self) -> int | None:
        """The rows of a batch of this process, if the job has a batch size."""
        return self._consumer.opened.unit_rows or None

    @property
    def has_partial_batch(self) -> None:
        """It is not known whether the last batch is smaller."""
        return

    @property
    def partial_batch_size(self) -> None:
        """The number of rows of the last batch is not known."""
        return
