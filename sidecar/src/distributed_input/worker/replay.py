"""The rows of an epoch, computed again in one process, from a saved position and an input.

The splits run as they do in a worker, so their rows are those that were delivered. A position has
the digests of the splits that were open when it was saved. Rows of these splits are compared.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from distributed_input.api.config import InputConfig
from distributed_input.api.errors import ConfigError, PositionError, SpecError
from distributed_input.api.proto import trainer_pb2, types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.order import identity, mixture
from distributed_input.order.job_config import job_of_config
from distributed_input.order.repeated_splits import SPLIT_MASK
from distributed_input.order.share import seed_of
from distributed_input.order.split_names import SplitNames, split_names
from distributed_input.order.step_rows import (
    RowRange,
    UnknownLengthError,
    rows_of_step,
    splits_of,
    step_of_row,
)
from distributed_input.rows.blocks import RowBlock
from distributed_input.rows.decode import decode_leaves
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.rows.prefix import DIGEST_VERSION, Prefix
from distributed_input.rows.runs import Bytes, slice_run
from distributed_input.worker.datasets.describe import describe
from distributed_input.worker.datasets.split_opener import SplitOpener
from distributed_input.worker.host.cpu_times import usable_cpus
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.streams.split_runner import SplitRunner

_ENDLESS = 1 << 60  # rows of a split that never ends


class Found(NamedTuple):
    """A row, and the step that has it; None: it is delivered in none.

    In a mixture, `split` is its number in the epoch, see `EpochRows.located`.
    """

    step: int | None
    split: int
    row: int


class EpochRows:
    """The rows of a position's epoch.

    Args:
        position: a saved position.
        config: the input, with an entry point.

    Raises:
        ConfigError: the dataset is not an entry point.
        DistributedInputError: see `describe`.
        PositionError: the position is of another dataset, or it shows no steps.
    """

    def __init__(self, position: trainer_pb2.Position, config: InputConfig) -> None:
        if config.dataset.from_trainer:
            raise ConfigError(
                "spec.dataset.entryPoint: is missing. Only the trainer has the dataset, so its "
                "rows cannot be computed here: use a dataset_fn"
            )
        draft = job_of_config(position.job, config)
        # A program may replace these values of the resource, and the position has those in use.
        draft.seed, draft.mode = position.seed, position.mode
        draft.partitions = position.partitions
        if not draft.sources:
            draft.num_splits = position.num_splits
        draft.global_batch_size = position.global_batch_size
        relaxed = config.determinism == "relaxed"
        self.job = describe(draft, relaxed)
        identity.check(position, self.job)
        self.row = ElementSpec.from_json(self.job.row_spec)
        self._position = trainer_pb2.Position()
        self._position.CopyFrom(position)
        if not position.weights and not position.base_step:
            self._position.weights.extend(self.job.weights)  # see `mixture.log_of`
        # A map that wakes other threads for a row costs several times as much CPU as in this one.
        self._runner = SplitRunner(
            SplitOpener(_no_traced_dataset, relaxed=relaxed),
            SplitStates(),
            is_crowded=lambda: True,
        )
        self._lengths: dict[int, int] = {}
        self._known = _known(position, self.job)

    def ranges(self, step: int, consumer: int | None = None) -> list[RowRange]:
        """Return the rows of a step, in the order of delivery. Runs splits of unknown length.

        Raises as `rows_of_step`, and errors of the dataset.
        """
        while True:
            try:
                remainder = self.job.remainder
                return rows_of_step(self._position, step, self._lengths, remainder, consumer)
            except UnknownLengthError as error:
                self._lengths[error.split] = self._length(error.split)

    def is_verified(self, rows: RowRange) -> bool:
        """Return whether `read` compares these rows with those that were delivered."""
        return rows.first_row + rows.rows <= self._known.get(rows.split, Prefix()).rows

    def read(self, ranges: Sequence[RowRange]) -> list[Bytes]:
        """Return these rows as one run: its buffers, as in `rows.decode`. Each split runs once.

        Raises:
            PositionError: the dataset makes other rows now.
        """
        pieces: list[list[Sequence[Bytes]]] = [[] for _ in ranges]
        for split in dict.fromkeys(one.split for one in ranges):
            wanted = [at for at, one in enumerate(ranges) if one.split == split]
            end = max(ranges[at].first_row + ranges[at].rows for at in wanted)
            for block in self._blocks(split, end):
                for at in wanted:
                    pieces[at] += _overlap(self.row, block, ranges[at])
        parts = [piece for run in pieces for piece in run]
        if not parts:
            return [np.zeros(0, np.uint8)] * self.row.buffer_count
        return [np.concatenate(of_buffer) for of_buffer in zip(*parts, strict=True)]

    def find(self, component: str, value: str) -> list[Found]:
        """Return the rows of the epoch whose component has a value, by step.

        Runs all splits, as many at the same time as there are CPUs.

        Args:
            component: its path, for example "name" or "label/id".
            value: as text.

        Raises:
            ConfigError: there is no such component, it has several values in a row, or the value is
                not of its type.
            PositionError: the dataset never ends, or see `step_of_row`.
        """
        if any(one.infinite for one in self.job.sources or [self.job]):
            raise PositionError("the dataset never ends, so that not all of its rows can be read")
        leaf, first = self._scalar(component)
        wanted = _parsed(leaf, value)
        alone = ElementSpec(0, (leaf,))

        def search(splits: Iterator[int]) -> list[tuple[int, int]]:
            rows: list[tuple[int, int]] = []
            for split in splits:
                self._lengths[split] = 0
                for block in self._blocks(split):
                    self._lengths[split] = block.end_row
                    buffers = block.buffers[first : first + alone.buffer_count]
                    (values,) = decode_leaves(alone, block.rows, buffers)
                    hits = np.flatnonzero(values == wanted).tolist()
                    rows += [(split, block.first_row + at) for at in hits]
            return rows

        with ThreadPoolExecutor(usable_cpus()) as pool:
            lists = splits_of(self._position, self._lengths)
            rows = [row for found in pool.map(search, lists) for row in found]
        position, remainder = self._position, self.job.remainder
        found = [Found(step_of_row(position, *one, self._lengths, remainder), *one) for one in rows]
        return sorted(found, key=lambda one: (one.step is None, one))

    def _scalar(self, component: str) -> tuple[Leaf, int]:
        """Return a component with one value in each row, and the index of its first buffer."""
        at = 0
        for leaf in self.row.leaves:
            if leaf.path == component:
                if leaf.kind != "dense" or leaf.shape:
                    raise ConfigError(
                        f"--find: {leaf.label} has several values in a row: use a key"
                    )
                return leaf, at
            at += sum(column.buffers for column in leaf.columns)
        names = ", ".join(repr(leaf.path) for leaf in self.row.leaves)
        raise ConfigError(f"--find: there is no component {component!r}, but {names}")

    def _length(self, split: int) -> int:
        if self.located(split).job.infinite:
            return _ENDLESS
        return sum(block.rows for block in self._blocks(split))

    def names(self, splits: NDArray[np.int64]) -> SplitNames:
        """Return the names of splits of the epoch."""
        return split_names(self.job, self._position.epoch, splits)

    def located(self, split: int) -> mixture.SourceSplit:
        """Return a split of the epoch as `dataset_fn` knows it."""
        job, epoch = self.job, self._position.epoch
        if not job.sources:
            return mixture.SourceSplit(job, epoch, split)
        return mixture.source_split(job.num_splits, job.sources, epoch, split)

    def _blocks(self, split: int, end: int | None = None) -> Iterator[RowBlock]:
        """Yield the rows of a split before row `end`, and those that the position knows, compared.

        Raises:
            PositionError: they differ.
        """
        known, at = self._known.get(split, Prefix()), self.located(split)
        request = worker_pb2.StreamRequest(
            job=at.job,
            seed=seed_of(self.job, self._position.consumer),
            epoch=at.epoch,
            split=at.split,
            digest_version=DIGEST_VERSION,
        )
        found = Prefix()
        for block in self._runner.blocks(request, StreamCounters()):
            if not block.rows:
                continue
            if block.first_row < known.rows:
                found = block.prefix_at(min(block.end_row, known.rows))
            yield block
            if end is not None and block.end_row >= max(end, known.rows):
                break
        if found != known:
            raise PositionError(
                f"split {at.split} makes other rows now than those that were delivered: of its "
                f"first {known.rows} rows, some differ or are missing. The data, the code or the "
                "version of TensorFlow has changed, or the dataset is not deterministic"
            )


def _known(position: trainer_pb2.Position, job: types_pb2.Job) -> dict[int, Prefix]:
    """Return the prefixes in a position by the number of their split."""
    found = {one.split: Prefix(one.rows, one.digest) for one in position.prefixes}
    if not job.sources:
        return found
    numbers: dict[int, int] = {}  # a prefix of a mixture has only some bits of the number
    for anchor, own in zip(position.anchors, mixture.deal(job, position.epoch), strict=False):
        if anchor.ordinal < len(own):
            numbers[own[anchor.ordinal] & SPLIT_MASK] = own[anchor.ordinal]
    return {numbers[one]: prefix for one, prefix in found.items() if one in numbers}


def _overlap(row: ElementSpec, block: RowBlock, wanted: RowRange) -> list[Sequence[Bytes]]:
    """Return a copy of the rows of a block that are wanted. A view would keep the whole block."""
    start = max(wanted.first_row, block.first_row) - block.first_row
    stop = min(wanted.first_row + wanted.rows, block.end_row) - block.first_row
    if start >= stop:
        return []
    return [[one.copy() for one in slice_run(row.columns, block.buffers, start, stop)]]


def _parsed(leaf: Leaf, text: str) -> Any:
    """Return a value of a component. Raises ConfigError."""
    if leaf.is_string:
        return text.encode()
    try:
        kind = np.dtype(leaf.dtype)
        if kind == np.bool_:
            return {"true": True, "false": False}[text.lower()]
        return kind.type(int(text) if np.issubdtype(kind, np.integer) else float(text))
    except (ValueError, KeyError, TypeError, OverflowError):
        raise ConfigError(f"--find: {text!r} is no value of type {leaf.dtype}") from None


def _no_traced_dataset(_: str) -> bytes:
    raise SpecError("the dataset is not an entry point")
