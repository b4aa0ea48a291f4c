"""The files of `cache(filename)`: each split has its own, and they are complete or absent.

TensorFlow writes a cache while the dataset is read for the first time, beside a lock file. A second
writer fails on the lock file, also if the first one was killed. So each iterator writes to private
files. When it has read the whole dataset, they are renamed to the files that later epochs read, on
this worker and on others that see the folder. Otherwise they are removed.

A writer holds a flock for its private files. The next writer of the split removes files whose lock
is free: their process was killed. Object stores have no locks; there, private files of killed
workers remain.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import secrets
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.graph.determinism import inputs_of
from distributed_input.runtime import logs
from distributed_input.runtime.files.locked_folders import is_free, lock_new

_log = logs.get("worker.datasets")
_PART, _LOCK, _INDEX = ".part-", ".lock", ".index"


class CacheWriter:
    """The private files of one iterator for one cache.

    The names of the files that later epochs read start with `path`, and those of the private files
    with `part`.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        self.part = f"{path}{_PART}{secrets.token_hex(8)}"
        self._lock: int | None = None
        tf.io.gfile.makedirs(os.path.dirname(path) or ".")
        if "://" not in path:
            remove_stale(path)
            self._lock = lock_new(Path(self.part + _LOCK))

    def close(self, ended: bool) -> None:
        """Publish the files if the cache is complete, and remove them otherwise.

        It is complete if the iterator has ended: it has returned its last element.
        """
        if ended and _exists(self.part) and not _exists(self._path):
            files = sorted(_files(self.part), key=lambda file: file.endswith(_INDEX))
            for file in files:  # the index comes last: with it, the cache is complete
                if not file.endswith(_LOCK):
                    suffix = file[len(self.part) :]
                    tf.io.gfile.rename(file, self._path + suffix, overwrite=True)
            _log.info("cached", files=self._path)
        self._discard()

    def _discard(self) -> None:
        if self.part:
            _remove(self.part)
            self.part = ""
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def __del__(self) -> None:
        with contextlib.suppress(Exception):  # the interpreter may be ending
            self._discard()


class SplitCaches:
    """The cache files of one split.

    `version` has values on which the rows of the split depend, beyond what its graph shows. There
    is a writer for each cache that is not complete yet.
    """

    def __init__(self, split: int, splits: int, version: Sequence[str] = ()) -> None:
        self._name = f"split-{split:05d}-of-{splits:05d}"
        self._version = hashlib.blake2b(repr(list(version)).encode(), digest_size=4).hexdigest()
        self.writers: list[CacheWriter] = []

    def path(self, file: str, fingerprint: str) -> str:
        """Return the files of a cache of this split: to read if they are complete, or to write.

        `fingerprint` is that of what is before the cache.
        """
        path = f"{file}-{self._name}-{fingerprint}{self._version}"
        if _exists(path):
            return path
        writer = CacheWriter(path)
        self.writers.append(writer)
        return writer.part


class CachingIterator:
    """An iterator that closes cache files after its last element, or when it is dropped."""

    def __init__(self, elements: Iterator[Any], writers: list[CacheWriter]) -> None:
        self._elements: Iterator[Any] | None = elements
        self._writers = writers

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._elements is None:
            raise StopIteration
        try:
            return next(self._elements)
        except StopIteration:
            self._close(ended=True)
            raise

    def _close(self, ended: bool) -> None:
        self._elements = None  # TensorFlow's iterator stops writing
        for writer in self._writers:
            writer.close(ended)
        self._writers = []

    def __del__(self) -> None:
        with contextlib.suppress(Exception):
            self._close(ended=False)


def remove_stale(path: str) -> None:
    """Remove the private files of a cache whose writers were killed."""
    for file in _files(path + _PART):
        if file.endswith(_LOCK) and is_free(Path(file)):
            _remove(file.removesuffix(_LOCK))


def check_without_graph(dataset: tf.data.Dataset) -> None:
    """Check that a dataset that has no graph does not cache to files.

    Raises:
        ConfigError: it does. Without a graph, its splits cannot get files of their own.
    """
    for one in inputs_of(dataset):
        file = getattr(one, "_filename", None)
        if type(one).__name__ == "CacheDataset" and file is not None and file.numpy():
            raise ConfigError(
                f"the dataset caches to files ({file.numpy().decode(errors='replace')}), but it "
                "has no graph, so its splits cannot get files of their own: remove "
                "cache(filename), or build the dataset without Python generators"
            )


def _exists(path: str) -> bool:
    return bool(tf.io.gfile.exists(path + _INDEX))


def _files(prefix: str) -> list[str]:
    """Return the files whose names begin with `prefix`. It may contain characters of patterns."""
    folder, start = os.path.split(prefix)
    try:
        names = tf.io.gfile.listdir(folder or ".")
    except tf.errors.NotFoundError:
        return []
    return [os.path.join(folder, name) for name in names if name.startswith(start)]


def _remove(prefix: str) -> None:
    for file in _files(prefix):
        with contextlib.suppress(tf.errors.NotFoundError):
            tf.io.gfile.remove(file)
