"""Divide whole elements among the replicas of a strategy, as TensorFlow does.

`strategy.experimental_distribute_dataset` divides the first dimension of each element. The last
replicas get fewer rows, or none, if their number does not divide it.
"""

from __future__ import annotations

from typing import Any

import tensorflow as tf
from tensorflow.python.data.util.structure import NoneTensorSpec

from distributed_input.api.errors import ConfigError


def divide(dataset: tf.data.Dataset, replicas: int) -> tf.data.Dataset:
    """Return a dataset with `replicas` elements for each element: its rows, divided.

    Raises:
        ConfigError: a component has no first dimension, or they are known to differ.
    """
    spec = dataset.element_spec
    known = _known_rows(spec, replicas)
    rows_of_part = known // replicas if known is not None and known % replicas == 0 else None

    def parts(*element: Any) -> tf.data.Dataset:
        whole = element if type(spec) is tuple else element[0]  # not for a namedtuple
        rows, *others = map(_rows, _present(whole))
        for other in others:
            message = "components of one element have different numbers of rows"
            tf.debugging.assert_equal(rows, other, message)
        size = (rows + replicas - 1) // replicas

        def part(index: tf.Tensor) -> Any:
            start, stop = (tf.minimum(at * size, rows) for at in (index, index + 1))
            return tf.nest.map_structure(
                lambda value: _slice(value, start, stop, rows_of_part), whole
            )

        return tf.data.Dataset.range(replicas).map(part)

    return dataset.flat_map(parts)


def _known_rows(spec: Any, replicas: int) -> int | None:
    components = _present(spec)
    for component in components:
        if component.shape.rank is None or component.shape.rank == 0:
            raise ConfigError(
                f"elements of {component} cannot be divided among {replicas} replicas, as "
                "experimental_distribute_dataset does: batch the dataset, or pass a dataset_fn, "
                "whose elements are for one replica each"
            )

    sizes = list(dict.fromkeys(one.shape[0] for one in components if one.shape[0] is not None))
    if len(sizes) > 1:
        raise ConfigError(
            f"components of one element have {sizes[0]} and {sizes[1]} rows, so it cannot be"
            f" divided among {replicas} replicas: give all of them the same first dimension, or"
            " pass a dataset_fn, whose elements are for one replica each"
        )
    return sizes[0] if sizes else None


def _present(element: Any) -> list[Any]:
    """Return the components that are not None."""
    flat = tf.nest.flatten(element)
    return [one for one in flat if one is not None and not isinstance(one, NoneTensorSpec)]


def _rows(value: Any) -> tf.Tensor:
    if isinstance(value, tf.SparseTensor):
        return value.dense_shape[0]
    if isinstance(value, tf.RaggedTensor):
        return tf.cast(value.nrows(), tf.int64)
    return tf.shape(value, tf.int64)[0]


def _slice(value: Any, start: tf.Tensor, stop: tf.Tensor, rows: int | None) -> Any:
    if value is None:
        return None
    if isinstance(value, tf.SparseTensor):
        rest = value.dense_shape[1:]
        first = tf.concat([[start], tf.zeros_like(rest)], 0)
        return tf.sparse.slice(value, first, tf.concat([[stop - start], rest], 0))
    part = value[start:stop]
    return tf.ensure_shape(part, [rows, *value.shape[1:]]) if isinstance(value, tf.Tensor) else part
