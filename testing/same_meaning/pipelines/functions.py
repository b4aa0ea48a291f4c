"""What the pipelines of cases call: functions on elements, files to read, options.

This module is long because it has a function for each kind of element.

A pipeline is written as text; see `grammar`. The functions take any element, and raise TypeError
while they are traced if they do not fit it, so that the grammar drops the op.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import itertools
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import tensorflow as tf

D = tf.data.Dataset
RECORD_BYTES = 9
_lock = threading.Lock()
_here = threading.local()
_numbers = itertools.count()


@functools.cache
def folder() -> Path:
    """Return the folder of this process for files that pipelines read and write.

    It stays until the process ends: `ignore_errors` reads a missing file again without an end, in
    iterators that a worker keeps for a while.
    """
    made = Path(tempfile.mkdtemp(prefix="same-meaning-"))
    atexit.register(shutil.rmtree, made, ignore_errors=True)
    return made


# Sources.


def ids(start: int, stop: int) -> Any:
    """Return the numbers of rows."""
    return np.arange(start, stop, dtype=np.int64)


def records(start: int, stop: int) -> dict[str, Any]:
    """Return columns of several types."""
    numbers = ids(start, stop)
    return {
        "id": numbers,
        "x": np.stack([numbers, -numbers], axis=1).astype(np.float32),
        "name": np.array([f"row {number}" for number in numbers.tolist()], object),
        "flag": numbers % 2 == 0,
    }


def ragged(start: int, stop: int) -> tf.RaggedTensor:
    """Return ragged rows of 0 to 3 numbers."""
    return tf.ragged.constant([[n] * (n % 4) for n in range(start, stop)], tf.int64, ragged_rank=1)


def sparse(start: int, stop: int) -> tf.SparseTensor:
    """Return sparse rows."""
    return tf.sparse.from_dense([[n, 0, n % 3] for n in range(start, stop)])


def text_files(lengths: Sequence[int], start: int) -> list[str]:
    """Write text files of these lengths; return their names. The lines are consecutive numbers."""
    return _files("text", lengths, start, _write_text)


def tfrecord_files(lengths: Sequence[int], start: int) -> list[str]:
    """Write TFRecord files of these lengths; return their names."""
    return _files("tfrecord", lengths, start, _write_tfrecord)


def fixed_files(lengths: Sequence[int], start: int) -> list[str]:
    """Write files of records of `RECORD_BYTES` bytes; return their names."""
    return _files("fixed", lengths, start, _write_fixed)


def pattern(names: list[str]) -> str:
    """Return the pattern of the files, for list_files."""
    return str(Path(names[0]).parent / "part-*")


def _files(
    kind: str, lengths: Sequence[int], start: int, write: Callable[[str, list[bytes]], None]
) -> list[str]:
    place = folder() / f"{kind}-{start}-{'-'.join(map(str, lengths))}"
    names = [str(place / f"part-{number:02}") for number in range(len(lengths))]
    with _lock:
        if not place.exists():
            place.mkdir()
            for name, length in zip(names, lengths, strict=True):
                write(name, [b"%d" % number for number in range(start, start + length)])
                start += length
    return names


def _write_text(name: str, rows: list[bytes]) -> None:
    Path(name).write_bytes(b"".join(row + b"\n" for row in rows))


def _write_tfrecord(name: str, rows: list[bytes]) -> None:
    with tf.io.TFRecordWriter(name) as writer:
        for row in rows:
            writer.write(row)


def _write_fixed(name: str, rows: list[bytes]) -> None:
    Path(name).write_bytes(b"".join(row.rjust(RECORD_BYTES) for row in rows))


@contextlib.contextmanager
def own_paths() -> Iterator[None]:
    """Let `new_path` return a new path for each call, so that nothing is read that others wrote."""
    _here.own = True
    try:
        yield
    finally:
        _here.own = False


def new_path(name: str) -> str:
    """Return the path of a folder, for snapshot."""
    own = f"-{next(_numbers)}" if getattr(_here, "own", False) else ""
    return str(folder() / f"{name}{own}")


def read_text(name: tf.Tensor) -> tf.data.Dataset:
    """Return the lines of a file."""
    return tf.data.TextLineDataset(name)


def read_batches(name: tf.Tensor) -> tf.data.Dataset:
    """Return the lines of a file in batches."""
    return tf.data.TextLineDataset(name).batch(4)


# Elements.


def _element(parts: tuple[Any, ...]) -> Any:
    return parts[0] if len(parts) == 1 else parts


def _dense(part: Any) -> bool:
    return isinstance(part, tf.Tensor) and part.dtype != tf.variant


def number(element: Any) -> tf.Tensor:
    """Return the first dense component of an element as int64, of its own shape."""
    for part in tf.nest.flatten(element):
        if not _dense(part):
            continue
        if part.dtype == tf.string:
            digits = tf.strings.regex_replace(part, "[^0-9]", "")
            return tf.strings.to_number(tf.strings.join(["0", digits]), tf.int64)
        if part.dtype.is_integer:
            return tf.cast(part, tf.int64)
    raise TypeError("the element has no dense component with numbers")


def scalar(element: Any) -> tf.Tensor:
    """Return a number of the element, of rank 0."""
    value = number(element)
    return value if value.shape.rank == 0 else tf.reduce_sum(value)


def _row(element: Any) -> tf.Tensor:
    """Return the number of an element that is a row."""
    value = number(element)
    if value.shape.rank != 0:
        raise TypeError("the element is not a scalar")
    return value


def add(*parts: Any) -> Any:
    """Add a constant to each dense number."""

    def change(part: Any) -> Any:
        numeric = _dense(part) and (part.dtype.is_integer or part.dtype.is_floating)
        return part + tf.cast(3, part.dtype) if numeric and part.dtype != tf.uint64 else part

    return tf.nest.map_structure(change, _element(parts))


def parse(*parts: Any) -> Any:
    """Return the number of an element beside it."""
    element = _element(parts)
    return element, number(element)


def as_dict(*parts: Any) -> Any:
    """Return a dict of the element and its number."""
    element = _element(parts)
    return {"b": element, "a": number(element)}


def as_text(*parts: Any) -> Any:
    """Return the element with its number as a string."""
    element = _element(parts)
    return element, tf.strings.as_string(number(element))


def total(*parts: Any) -> Any:
    """Return one number for the whole element, which may be a batch."""
    return tf.reduce_sum(number(_element(parts)))


def half(*parts: Any) -> Any:
    """Return the element with its number in other types."""
    element = _element(parts)
    small = number(element) % 100
    return element, (tf.cast(small, tf.float16), tf.cast(small, tf.uint8), tf.cast(small, tf.int8))


def wide(*parts: Any) -> Any:
    """Return the element with its number as bfloat16, complex and bool."""
    element = _element(parts)
    small = number(element) % 100
    real = tf.cast(small, tf.float64)
    return element, (tf.cast(small, tf.bfloat16), tf.complex(real, -real), small % 2 == 0)


def matrix(*parts: Any) -> Any:
    """Return the element with a [2, 3] matrix for each row."""
    element = _element(parts)
    return element, tf.cast(number(element)[..., None, None], tf.float32) * tf.ones([2, 3])


def with_none(*parts: Any) -> Any:
    """Return the element with a component None."""
    return _element(parts), None


def vector(*parts: Any) -> Any:
    """Return the element with a vector of 1 to 4 numbers, none of them 0."""
    element = _element(parts)
    value = _row(element)
    return element, tf.fill([value % 4 + 1], value + 1)


def only_vector(*parts: Any) -> Any:
    """Return a vector of 0 to 4 numbers, none of them 0."""
    value = _row(_element(parts))
    return tf.fill([value % 5], value + 1)


def table(*parts: Any) -> Any:
    """Return a matrix with two unknown dimensions."""
    element = _element(parts)
    value = _row(element)
    return element, tf.fill([value % 2 + 1, value % 3 + 1], value + 1)


def unranked(*parts: Any) -> Any:
    """Return the element with a tensor of unknown rank."""
    element = _element(parts)
    value = _row(element)
    # Of different sizes: TensorFlow's map_and_batch takes shapes of one size as equal.
    odd = tf.cast(value % 2, tf.int32)
    shape = tf.concat([tf.fill([1 - odd], 1), [2 + odd]], 0)
    return element, tf.fill(shape, value)


def with_ragged(*parts: Any) -> Any:
    """Return the element with a ragged component of two rows."""
    element = _element(parts)
    value = _row(element)
    return element, tf.RaggedTensor.from_row_lengths(
        tf.fill([value % 3 + 2], value), tf.stack([value % 3, tf.constant(2, tf.int64)])
    )


def with_sparse(*parts: Any) -> Any:
    """Return the element with a sparse component."""
    element = _element(parts)
    value = _row(element)
    return element, tf.sparse.from_dense(tf.stack([value, tf.zeros([], tf.int64), value % 2]))


def noise(*parts: Any) -> Any:
    """Return the element with random numbers. Their dtype marks them: see `compare`."""
    element = _element(parts)
    shape = tf.shape(number(element))
    return element, tf.cast(tf.random.uniform(shape, maxval=1 << 62, dtype=tf.int64), tf.uint64)


def seeded_noise(*parts: Any) -> Any:
    """Return the element with random numbers of an op with a seed."""
    element = _element(parts)
    drawn = tf.random.uniform(tf.shape(number(element)), maxval=1 << 62, dtype=tf.int64, seed=7)
    return element, tf.cast(drawn, tf.uint64)


def keep(*parts: Any) -> tf.Tensor:
    """Return False for a third of the elements."""
    return scalar(_element(parts)) % 3 != 0


def keep_few(*parts: Any) -> tf.Tensor:
    """Return True for a fifth of the elements."""
    return scalar(_element(parts)) % 5 == 0


@functools.cache
def below(limit: int) -> Callable[..., tf.Tensor]:
    """Return a predicate for take_while."""
    return lambda *parts: scalar(_element(parts)) % 1000 < limit


FAILURE = "an element of fail_some"
"""Text of its error."""


def fail_some(*parts: Any) -> Any:
    """Raise an error for some elements."""
    element = _element(parts)
    value = scalar(element)
    zero = tf.zeros([], tf.int64)
    with tf.control_dependencies(
        [tf.debugging.assert_none_equal(value % 7, zero, message=FAILURE)]
    ):
        return tf.nest.map_structure(tf.identity, element)


def key(*parts: Any) -> tf.Tensor:
    """Return one of three keys."""
    return scalar(_element(parts)) % 3


@functools.cache
def batch_of(size: int) -> Callable[..., tf.data.Dataset]:
    """Return a reduce_func for group_by_window."""
    return lambda _, window: window.batch(size)


def group_sum(_: tf.Tensor, window: tf.data.Dataset) -> tf.data.Dataset:
    """Return one number for each group."""
    total = window.reduce(tf.zeros([], tf.int64), lambda t, *parts: t + scalar(_element(parts)))
    return D.from_tensors(total)


def running(state: tf.Tensor, *parts: Any) -> tuple[tf.Tensor, Any]:
    """Return a running total beside each element."""
    element = _element(parts)
    total = state + scalar(element)
    return total, (element, total)


@functools.cache
def joined(size: int, drop: bool) -> Callable[..., tf.data.Dataset]:
    """Return a function that makes one batch of each window."""

    def join(*windows: Any) -> tf.data.Dataset:
        parts = tf.nest.map_structure(lambda part: part.batch(size, drop), _element(windows))
        return parts if isinstance(parts, D) else D.zip(parts)

    return join


def twice(*parts: Any) -> tf.data.Dataset:
    """Return a dataset that repeats an element."""
    return D.from_tensors(_element(parts)).repeat(2)


def spread(*parts: Any) -> tf.data.Dataset:
    """Return a dataset of 0 to 2 pairs for an element."""
    element = _element(parts)
    return D.range(scalar(element) % 3).map(lambda position: (element, position))


def slices(*parts: Any) -> tf.data.Dataset:
    """Return the rows of an element."""
    return D.from_tensor_slices(_element(parts))


def length(*parts: Any) -> tf.Tensor:
    """Return the length of a vector, for bucket_by_sequence_length."""
    return tf.shape(tf.nest.flatten(_element(parts))[-1])[0]


def parity(*parts: Any) -> tf.Tensor:
    """Return one of two classes, for rejection_resample."""
    return tf.cast(scalar(_element(parts)) % 2, tf.int32)


def uneven(*parts: Any) -> tf.Tensor:
    """Return one of two classes, of which the second one has more rows."""
    return tf.cast(scalar(_element(parts)) // 8 % 5 > 1, tf.int32)


def shuffled_unseeded(dataset: tf.data.Dataset) -> tf.data.Dataset:
    """Shuffle by random numbers without a seed, as a function in the pipeline."""
    return dataset.shuffle(64)


def selector(pattern: Sequence[int], repeats: int | None) -> tf.data.Dataset:
    """Return the choices for choose_from_datasets."""
    return D.from_tensor_slices(np.array(pattern, np.int64)).repeat(repeats)


def random_selector(seed: int | None) -> tf.data.Dataset:
    """Return random choices for choose_from_datasets."""
    return D.random(seed).map(lambda value: value % 2)


def options(policy: str = "", deterministic: bool | None = None) -> tf.data.Options:
    """Return options of a dataset."""
    made = tf.data.Options()
    if policy:
        made.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy[
            policy
        ]
    if deterministic is not None:
        made.deterministic = deterministic
    return made
