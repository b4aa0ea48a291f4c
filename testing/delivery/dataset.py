"""The seam below the worker: splits made of numpy rows instead of TensorFlow's datasets.

`NumpySplits` takes the place of `worker.datasets.split_opener.SplitOpener`, and `describe` that of
`worker.datasets.describe.describe`. Everything above them is the product's code.
"""

from __future__ import annotations

import functools
import hashlib
import itertools
import json
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from distributed_input.api.proto import types_pb2
from distributed_input.order.jobs import DatasetFacts, complete
from distributed_input.order.mixture_jobs import combine, source_draft
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.datasets.boundary_files import BoundaryError
from distributed_input.worker.states.saved_state import KEY_BYTES
from testing.chaos import rows

element = functools.lru_cache(maxsize=4096)(rows.element)
"""`rows.element`, computed once. The ledger and the workers read it and never write to it."""


class UserError(Exception):
    """An error of the user's dataset."""


@functools.lru_cache(maxsize=64)
def _arguments(args_json: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(args_json)
    return found


def describe(draft: types_pb2.Job, **_: Any) -> types_pb2.Job:
    """Complete a draft, as the worker does for a dataset whose splits run in its own threads."""
    if draft.sources:
        drafts = (source_draft(draft, source) for source in draft.sources)
        return combine(draft, [describe(one) for one in drafts])
    arguments = _arguments(draft.entry_point.args_json)
    leaves = [
        Leaf("data", "dense", "uint8", (arguments["size"],)),
        Leaf("epoch", "dense", "int64", ()),
        Leaf("id", "dense", "int64", ()),
    ]
    if arguments["texts"]:
        leaves.append(Leaf("text", "dense", "string", ()))
    structure = {leaf.path: number for number, leaf in enumerate(leaves)}
    from distributed_input.graph.definition.canonical import FINGERPRINT_VERSION

    job = complete(draft, DatasetFacts(ElementSpec(structure, tuple(leaves))))
    job.definition_version = FINGERPRINT_VERSION
    job.definitions.append(1)  # else each split has a thread, which the scheduler does not know
    return job


class NumpyIterator:
    """An iterator with a state that can be saved, as `SavableIterator` has.

    Args:
        elements: returns the elements from a row on.
        batch_rows: rows in an element; the last one may have fewer.
        key: key of its states.
    """

    problem, inline = "", False

    def __init__(
        self, elements: Callable[[int], Iterator[dict[str, Any]]], batch_rows: int, key: bytes
    ) -> None:
        self.key, self.fetched = key, 0
        self._elements, self._batch_rows, self._row = elements, batch_rows, 0
        self._rest = elements(0)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        return self

    def __next__(self) -> dict[str, Any]:
        found = next(self._rest)
        self.fetched += 1
        self._row += self._batch_rows
        return found

    def save(self, _max_bytes: int, _timeout: float) -> bytes:
        """Return the state after the last element returned."""
        return b"%d" % self._row

    def restore(self, data: bytes) -> None:
        """Continue after the element at which the state was saved."""
        self._row = int(data)
        self._rest = self._elements(self._row)


class NumpySplits:
    """Opens the splits of one worker.

    Args:
        pid: process id of the worker; a flaky dataset depends on it.
        work: called with the number of rows that an element has; it takes virtual time.
        fails: returns whether the dataset raises an error at (split, row).
    """

    def __init__(
        self, pid: int, work: Callable[[int], None], fails: Callable[[int, int], bool]
    ) -> None:
        self._pid, self._work, self._fails = pid, work, fails
        self._has_boundary = True  # whose files fail once

    def keep(self, *_: object) -> None:
        """Keep nothing; see `SplitOpener.keep`."""

    def open(
        self,
        job: types_pb2.Job,
        seed: int,
        epoch: int,
        split: int,
        batch_rows: int,
        skipped: int = 0,
        inline: Callable[[], bool] = bool,
        _guards: None = None,
        may_write: bool = False,
    ) -> Any:
        """Return the elements of a split; see `SplitOpener.open`.

        Odd splits can skip rows. Every third one writes the files of a boundary, and cannot.
        """
        from distributed_input.worker.datasets.split_iterator import SplitIterator

        row = ElementSpec.from_json(job.row_spec)
        arguments = _arguments(job.entry_point.args_json)
        context_seed = rows.context_seed(seed, epoch, None)
        if source := job.entry_point.source:  # the arguments have the splits of all sources
            split += job.num_splits * int(source[1:])

        def elements(first: int) -> Iterator[dict[str, Any]]:
            each = self._elements(arguments, context_seed, epoch, split, first)
            return self._batches(each, batch_rows) if batch_rows else self._single(each)

        if arguments.get("flaky"):
            return SplitIterator(elements(0), row, bool(batch_rows))
        if may_write and self._has_boundary and split % 3 == 1:
            return SplitIterator(self._unwritable(elements(0)), row, bool(batch_rows))
        skipped -= skipped % split if split % 2 else skipped
        if skipped:
            behind = elements(skipped)
            return SplitIterator(behind, row, bool(batch_rows), skipped=skipped)
        values = job.entry_point.args_json, context_seed, epoch, split
        key = hashlib.blake2b(repr(values).encode(), digest_size=KEY_BYTES).digest()
        iterator: Any = NumpyIterator(elements, batch_rows or 1, key)
        return SplitIterator(iterator, row, bool(batch_rows), iterator)

    def sources(self, job: types_pb2.Job, *_: int) -> Any:
        """Return what the rows of a split depend on; see `SplitOpener.sources`."""
        from distributed_input.worker.datasets.split_opener import SplitSources

        return SplitSources((), True)

    def _elements(
        self, arguments: dict[str, Any], seed: int, epoch: int, split: int, first: int
    ) -> Iterator[dict[str, Any]]:
        order = list(range(rows.rows_in(arguments["rows"], arguments["vary"], epoch, split)))
        if arguments.get("flaky"):
            random.Random(self._pid).shuffle(order)
        for number in order[first:]:
            if self._fails(split, number):
                raise UserError(f"row {number} of split {split} cannot be read")
            yield element(seed, epoch, split, number, arguments["size"], arguments["texts"])

    def _unwritable(self, elements: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        yield from itertools.islice(elements, 3)
        self._has_boundary = False
        raise BoundaryError("the disk is full")

    def _single(self, elements: Iterator[dict[str, Any]]) -> Iterator[dict[str, Any]]:
        for each in elements:
            self._work(1)
            yield each

    def _batches(self, elements: Iterator[dict[str, Any]], size: int) -> Iterator[dict[str, Any]]:
        batch: list[dict[str, Any]] = []
        for each in elements:
            batch.append(each)
            if len(batch) == size:
                self._work(size)
                yield _stack(batch)
                batch = []
        if batch:
            self._work(len(batch))
            yield _stack(batch)


def _stack(batch: list[dict[str, Any]]) -> dict[str, Any]:
    stacked: dict[str, Any] = {}
    for name in batch[0]:
        values = [each[name] for each in batch]
        stacked[name] = np.array(values, object) if name == "text" else np.array(values)
    return stacked
