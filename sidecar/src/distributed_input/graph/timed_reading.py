"""Read a dataset for some seconds, again and again, for `distributed-input bench`.

The program has one line of JSON on standard input for each measurement: {"warmup": seconds,
"longest": seconds, "seconds": seconds}. It prints lines of JSON: {"event": "ready"} when it has the
first rows, then for each measurement {"event": "begun"} after the warm-up, and {"event":
"measured", ...}. After an error it prints {"event": "failed", "text": ...} and ends.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, TextIO

import numpy as np
import tensorflow as tf

_PAGE = 4096


@dataclass
class TimedReader:
    """A loop over a dataset that does nothing but read it.

    Each iteration over `elements` is an epoch. An element that is not batched counts as a row.
    """

    elements: Iterable[Any]
    batched: bool
    epochs: int = 0
    _epoch: Iterator[Any] | None = None

    def read(self, seconds: float) -> dict[str, Any]:
        """Read for this time, at least one element; return what was read.

        Raises:
          ValueError: an epoch has no elements.
        """
        rows = early = batches = 0
        epochs = self.epochs
        began, cpu = time.perf_counter(), time.process_time()
        while (spent := time.perf_counter() - began) < seconds or not batches:
            element = self._next()
            rows += self._rows(element)
            batches += 1
            if spent < seconds / 2:
                early = rows
        return {
            "rows": rows,
            "early_rows": early,
            "seconds": spent,
            "cpu": time.process_time() - cpu,
            "epochs": self.epochs - epochs,
        }

    def warm_up(self, seconds: float, longest: float) -> None:
        """Read for this time, and up to `longest` until the first epoch has ended.

        In the first epoch, workers define the graphs of the splits.
        """
        began = time.perf_counter()
        self.read(seconds)
        while not self.epochs and time.perf_counter() - began < longest:
            self.read(0.0)

    def _next(self) -> Any:
        for _ in range(2):
            if self._epoch is None:
                self._epoch = iter(self.elements)
            for element in self._epoch:
                return element
            self._epoch = None
            self.epochs += 1
        raise ValueError("the dataset has no rows: check what dataset_fn reads")

    def _rows(self, element: Any) -> int:
        """Return the rows of an element. Read a byte of each of its pages, as a copy would."""
        count = None
        for part in tf.nest.flatten(element):
            if count is None:
                count = _length(part)
            for tensor in tf.nest.flatten(part, expand_composites=True):
                array = np.asarray(tensor)
                if array.dtype != object and array.dtype.kind not in "SU":
                    array.reshape(-1).view(np.uint8)[::_PAGE].sum()
        return (count or 0) if self.batched else 1


def _length(part: Any) -> int:
    if isinstance(part, tf.SparseTensor):
        return int(part.dense_shape[0])
    if isinstance(part, tf.RaggedTensor):
        return int(part.nrows())
    return int(np.shape(part)[0]) if np.ndim(part) else 1


def serve(opened: Callable[[], TimedReader], commands: Iterable[str], answers: TextIO) -> int:
    """Open the dataset, then measure once for each line of `commands`; return the exit status."""

    def answer(event: str, **values: Any) -> None:
        answers.write(json.dumps({"event": event, **values}) + "\n")
        answers.flush()

    try:
        reader = opened()
        reader.read(0.0)
        answer("ready", batched=reader.batched)
        for line in commands:
            command = json.loads(line)
            reader.warm_up(command["warmup"], command["longest"])
            answer("begun")
            answer("measured", **reader.read(command["seconds"]))
    except Exception as error:  # noqa: BLE001 - the user's code may raise anything
        answer("failed", text=f"{error}" or type(error).__name__)
        return 1
    return 0


def own_output() -> TextIO:
    """Return standard output, and send what the user's code prints there to standard error."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    sys.stdout = sys.stderr
    return answers
