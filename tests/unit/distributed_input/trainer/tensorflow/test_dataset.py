"""Units as datasets: what TensorFlow may write to."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np

from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.trainer.tensorflow import dataset

SPEC = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", (1 << 16,)),))


class Consumer:
    """A consumer of one unit that TensorFlow reads in place."""

    spec = SPEC
    opened = SimpleNamespace(unit_rows=1, job=SimpleNamespace(remainder=0, infinite=False))
    writable = False

    def decoded(self, decode: Callable[[Any], Any], *, writable: bool) -> Iterator[Any]:
        self.writable = writable
        row = np.arange(1 << 16, dtype=np.int64).view(np.uint8)
        yield decode(SimpleNamespace(rows=1, buffers=[row]))


def test_units_that_are_read_in_place_are_requested_as_writable() -> None:
    consumer: Any = Consumer()
    (element,) = dataset.as_dataset(consumer)
    assert element["id"].shape == (1, 1 << 16)
    assert consumer.writable, "of other readers of the same batches, they are copies"
