"""One pass over the records of a dataset for all of its splits that this worker runs.

If splits select records, each of them reads or computes all records: n splits do it n times. Here,
the splits share a pass. It reads a chunk of records, and each split takes every n-th of them. The
rows of a split are the same as without sharing.

Chunks are kept in a bounded window. If it is full, the reader that needs the next chunk waits for
slower readers. A reader that does not advance for _WAIT_SECONDS loses its place, and continues with
a pass of its own. So does a split that is opened after its first chunk was dropped: splits that run
again start together, and share a new pass.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distributed_input.graph.definition import serialization
from distributed_input.graph.definition.canonical import fingerprint
from distributed_input.graph.sharding import RecordShard
from distributed_input.rows.elements import ElementSpec
from distributed_input.worker.datasets.split_iterator import (
    iterate,
    options_of,
    share_threads,
    with_options,
)

_WINDOW_BYTES = 64 << 20
_CHUNK_BYTES = 8 << 20
_CHUNK_SECONDS = 0.02  # target time to read one chunk
_WAIT_SECONDS = 10.0  # maximum time that a pass waits for a reader
_OPEN_SECONDS = 3.0  # maximum time that it waits for splits to open

Batch = Sequence[NDArray[Any]]
"""The components of consecutive records."""
Chunk = Sequence[Batch]


class Records:
    """The records that the splits of a dataset select from, as batches.

    `split` is the dataset of one of the splits, with its options and the resources of its graph,
    and `shard` is its shard. Runs with another `Job.first_run` have other passes: files may have
    changed. A chunk has at most `max_rows` rows for each split.
    """

    def __init__(
        self,
        shard: RecordShard,
        num_splits: int,
        dataset_id: str,
        first_run: str,
        cpus: int,
        split: tf.data.Dataset,
    ) -> None:
        self.num_splits = num_splits
        self._shard, self._dataset_id, self._cpus, self._of = shard, dataset_id, cpus, split
        self.key = dataset_id, first_run, fingerprint(shard.source), num_splits
        row_bytes = sum(map(_bytes_of, shard.spec))
        self.max_rows = max(1, _CHUNK_BYTES // max(1, num_splits * row_bytes))

    def batches(self, rows: int) -> Iterator[Batch]:
        """Yield the records in batches, with `rows` for each split."""
        return self._batches(self._records(), rows * self.num_splits)

    def of_split(self, split: int, rows: int, skipped: int) -> Iterator[Batch]:
        """Yield the records of one split in batches, without its first ones."""
        records = self._records().shard(self.num_splits, split)
        return self._batches(records.skip(skipped), rows)

    def _records(self) -> tf.data.Dataset:
        spec = self._shard.spec
        records = serialization.instantiate(self._shard.source, spec[0] if len(spec) == 1 else spec)
        # The options may follow the shard, for example the number of private threads.
        options = tf.data.Options()
        options._from_proto(options_of(self._of))  # noqa: SLF001 - there is no public method
        return records.with_options(options)

    def _batches(self, records: tf.data.Dataset, rows: int) -> Iterator[Batch]:
        batches = share_threads(records.batch(rows).prefetch(1), self._dataset_id)
        for batch in iterate(with_options(batches, self._cpus)):
            yield [component.__array__() for component in tf.nest.flatten(batch)]


class SharedPasses:
    """The passes that run in a worker. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._passes: weakref.WeakValueDictionary[Any, _Pass] = weakref.WeakValueDictionary()

    def read(self, records: Records, row: ElementSpec, split: int, rows: int) -> PassReader:
        """Return the elements of a split: batches of its records.

        An element of a new pass has at least `rows` rows, unless they are large.
        """
        with self._lock:
            shared = self._passes.get(records.key)
            if shared is None or shared.first:
                shared = self._passes[records.key] = _Pass(records, rows)
            return PassReader(shared, row, split)


class PassReader:
    """The elements of one split: batches of numpy arrays. `position` is the next chunk."""

    def __init__(self, shared: _Pass, row: ElementSpec, split: int) -> None:
        self.position = 0
        self._pass, self._row, self._split = shared, row, split
        self._taken = 0  # rows
        self._own: Iterator[Batch] | None = None
        shared.add(self)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        records = self._pass.records
        while self._own is None:
            try:
                chunk = self._pass.next_chunk(self)
            except _MissedError:
                self._own = records.of_split(self._split, records.max_rows, self._taken)
                break
            # Each batch of the chunk begins with a record of split 0.
            parts = [[part[self._split :: records.num_splits] for part in batch] for batch in chunk]
            mine = parts[0]
            if len(parts) > 1:
                mine = [np.concatenate(component) for component in zip(*parts, strict=True)]
            if len(mine[0]):
                self._taken += len(mine[0])
                return self._row.unflatten(mine)
        return self._row.unflatten(list(next(self._own)))


class _MissedError(Exception):
    """The chunk that a reader needs is no longer in the window."""


class _Pass:
    """A running pass and the window of its chunks, of which `first` is the index of the first.

    A batch has `rows` rows of each split, except for the last one.
    """

    def __init__(self, records: Records, rows: int) -> None:
        self.records = records
        self.first = 0
        self._chunks = self._read(min(rows, records.max_rows))
        self._window: deque[tuple[Chunk, int]] = deque()  # with their bytes
        self._bytes = 0
        self._readers: weakref.WeakSet[PassReader] = weakref.WeakSet()
        self._changed = threading.Condition()
        self._is_reading = False
        self._has_started = False
        self._full_since: float | None = None
        self._end: BaseException | None = None

    def add(self, reader: PassReader) -> None:
        """Add a reader. It counts as long as it exists."""
        with self._changed:
            self._readers.add(reader)

    def next_chunk(self, reader: PassReader) -> Chunk:
        """Return a reader's next chunk, and advance it.

        Raises:
            _MissedError: it is no longer in the window. The reader does not count any more.
            StopIteration: the records end.
            Exception: any error of the dataset.
        """
        while True:
            with self._changed:
                index = reader.position - self.first
                if index < 0:
                    self._readers.discard(reader)
                    raise _MissedError
                if index < len(self._window):
                    reader.position += 1
                    chunk, _ = self._window[index]
                    self._drop_read()
                    return chunk
                if self._end is not None:
                    if isinstance(self._end, StopIteration):
                        self._readers.discard(reader)
                        raise StopIteration  # a new one: its traceback has the caller's frames
                    raise self._end
                if self._is_reading:
                    self._changed.wait(1.0)
                    continue
                if self._wait_for_slower():
                    continue
                self._is_reading = True
            self._read_chunk()

    def _read_chunk(self) -> None:
        chunk, end = None, None
        try:
            chunk = next(self._chunks)
        except BaseException as error:  # noqa: BLE001 - raised for every reader
            end = error
        with self._changed:
            self._is_reading, self._end = False, end
            if chunk is not None:
                self._window.append(
                    (chunk, sum(_nbytes(part) for batch in chunk for part in batch))
                )
                self._bytes += self._window[-1][1]
            self._changed.notify_all()

    def _wait_for_slower(self) -> bool:
        """Wait a moment if the window is full. Drop its first chunk after _WAIT_SECONDS.

        Return whether it waited. The caller holds the lock.
        """
        if self._bytes < _WINDOW_BYTES:
            return False
        if not self._has_started:
            opens = len(self._readers) < self.records.num_splits
            if opens and self._wait(_OPEN_SECONDS):
                return True
            self._has_started, self._full_since = True, None
        self._drop_read()
        if self._bytes < _WINDOW_BYTES:
            return False
        if self._wait(_WAIT_SECONDS):
            return True
        self._drop_first()
        return False

    def _wait(self, seconds: float) -> bool:
        """Wait a moment, if the window has been full for less than `seconds`."""
        now = time.monotonic()
        if self._full_since is None:
            self._full_since = now
        if now - self._full_since >= seconds:
            return False
        self._changed.wait(0.1)
        return True

    def _drop_read(self) -> None:
        """Drop what all readers have taken. At first, all is kept for splits that open later."""
        if not self._has_started:
            return
        positions = [reader.position for reader in self._readers]
        needed = min((at for at in positions if at >= self.first), default=self.first)
        while self._window and self.first < needed:
            self._drop_first()

    def _drop_first(self) -> None:
        self._bytes -= self._window.popleft()[1]
        self.first += 1
        self._full_since = None
        self._changed.notify_all()

    def _read(self, rows: int) -> Iterator[Chunk]:
        """Yield the chunks. A chunk has the batches that are read in about _CHUNK_SECONDS."""
        most = max(1, self.records.max_rows // rows)
        count, chunk, began = 1, list[Batch](), time.monotonic()
        try:
            for batch in self.records.batches(rows):
                chunk.append(batch)
                if len(chunk) == count:
                    seconds = time.monotonic() - began
                    yield chunk
                    wanted = int(count * _CHUNK_SECONDS / max(seconds, 1e-6))
                    count = max(1, min(wanted, 2 * count, most))
                    chunk, began = [], time.monotonic()
        except Exception:
            if chunk:
                yield chunk
            raise
        if chunk:
            yield chunk


def _nbytes(part: NDArray[Any]) -> int:
    return sum(map(len, part.reshape(-1).tolist())) if part.dtype == object else part.nbytes


def _bytes_of(spec: tf.TensorSpec) -> int:
    items = int(np.prod(spec.shape.as_list(), dtype=np.int64))
    return items * (64 if spec.dtype == tf.string else spec.dtype.size)
