"""What the guards of a split's graph call for records that fail; see `graph.record_guards`."""

from __future__ import annotations

import re
import struct
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import tensorflow as tf
from numpy.typing import NDArray

from distributed_input.api.errors import DatasetFnError
from distributed_input.graph import record_guards
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.graph.record_guards import CheckMap, Guards
from distributed_input.worker.datasets.bad_records import SplitErrors

_CORRUPT = re.compile(r"corrupted record at (\d+)")
_HEADER = struct.Struct("<QI")  # the length of a record, and its checksum
_FOOTER_BYTES = 4  # the checksum of the record
_SEARCHED_BYTES = 1 << 20  # at once
_BUFFER_BYTES = 1 << 20
READER = "TFRecordDataset"


def guard(graph_def: GraphDef, errors: SplitErrors, has_files: bool) -> tuple[GraphDef, Guards]:
    """Return the graph of a split that leaves out records, and what must live as long.

    Args:
        graph_def: the graph.
        errors: gets the records.
        has_files: whether readers of TFRecords continue behind corrupt records. Each file is then
            read twice.
    """

    def check_map(guards: Guards) -> CheckMap:
        def check(
            dataset: tf.Tensor, name: tf.Tensor, index: tf.Tensor, strings: Sequence[tf.Tensor]
        ) -> bool:
            guarded = guards.maps[name.numpy().decode()]
            values = [bytes(one.numpy()) for one in strings if not one.shape.rank]
            is_scalar = [not one.shape.rank for one in strings]
            place = int(index), values, sum(is_scalar[: guarded.sources]), guarded.is_shared
            if errors.exclude(guarded.function, *place):
                return False
            try:
                tf.raw_ops.DatasetToSingleElement(
                    dataset=dataset, output_types=guarded.types, output_shapes=guarded.shapes
                )
            except Exception as error:  # noqa: BLE001 - raised again, unless it is of the record
                errors.skip(error, guarded.function, *place)
                return False
            return True

        return check

    def check_file(file: tf.Tensor, compression: tf.Tensor) -> tuple[list[int], list[int]]:
        parts = list(find_parts(file.numpy().decode(), compression.numpy().decode(), errors))
        return [offset for offset, _ in parts], [count for _, count in parts]

    excluded = {one.step: errors.indexes(one.step) for one in errors.excluded}
    result, guards = record_guards.guard(
        graph_def, check_map, check_file if has_files else None, excluded
    )
    _check_excluded(errors, guards)
    return result, guards


def _check_excluded(errors: SplitErrors, guards: Guards) -> None:
    """Raise DatasetFnError if the excluded records of a split are not known for certain."""
    for one in errors.excluded:
        found = [each for each in guards.maps.values() if each.function == one.step]
        problem = ""
        if one.step == READER and guards.readers:
            if not one.file:
                problem = "each file may have such a record. Set the file"
        elif len(found) != 1:
            steps = ", ".join(each.function for each in guards.maps.values())
            problem = (
                f"the split has {len(found)} such steps. Its maps of single records are "
                f"{steps or 'missing'}. Correct the name, or give each map a named function"
            )
        elif found[0].is_in_function and not one.file:
            problem = "this step runs for several files. Set the file"
        elif found[0].is_shared and one.HasField("split"):
            problem = "all splits get the records of this step. Remove the split"
        elif found[0].has_random_order and not one.HasField("epoch"):
            problem = (
                "a shuffle comes before this step, so that each epoch has another record at this "
                "index. Set the epoch, or shuffle after the step"
            )
        if problem:
            where = f"spec.badRecords.exclude: record {one.index} of {one.step}"
            raise DatasetFnError(f"{where}: {problem}")


def find_parts(file: str, compression: str, errors: SplitErrors) -> list[tuple[int, int]]:
    """Return the parts of a TFRecord file between corrupt records: offsets, and numbers of records.

    Raises:
        Exception: the file cannot be read, or it is compressed and has a corrupt record: what
            follows cannot be read.
    """
    parts: list[tuple[int, int]] = []
    offset, records = 0, 0
    while True:
        part = _records(file, compression, offset)
        try:
            count = _count(part)
            error = None
        except tf.errors.DataLossError as raised:
            error = raised
            # Errors of storage are errors of `_count`: it has read the same bytes.
            count = _count(part.ignore_errors())
        parts += _without_excluded(file, compression, offset, records, count, errors)
        if error is None:
            return parts
        records += count
        found = _CORRUPT.search(error.message)
        if compression or found is None:
            raise error
        errors.skip(error, READER, records, [file.encode()], 1)
        records += 1
        following = _following(file, int(found.group(1)))
        if following is None:
            return parts
        offset = following


def _without_excluded(
    file: str, compression: str, offset: int, first: int, count: int, errors: SplitErrors
) -> Iterator[tuple[int, int]]:
    """Yield the parts of a part without its excluded records.

    Args:
        file: name of the file.
        compression: its compression.
        offset: offset of the part.
        first: index of its first record.
        count: number of its records.
        errors: has the excluded records.
    """
    end = first + count
    for index in errors.indexes(READER):
        if first <= index < end and errors.exclude(READER, index, [file.encode()], 1):
            if compression:
                raise DatasetFnError(
                    f"spec.badRecords.exclude: {file} is compressed, so that it cannot be read "
                    "without one record. Exclude it at the map that parses it"
                )
            if index > first:
                yield offset, index - first
            offset = _behind(file, offset, index + 1 - first)
            first = index + 1
    if end > first:
        yield offset, end - first


def _behind(file: str, offset: int, records: int) -> int:
    """Return the offset behind valid records."""
    with tf.io.gfile.GFile(file, "rb") as opened:
        for _ in range(records):
            opened.seek(offset)
            length, _ = _HEADER.unpack(opened.read(_HEADER.size))
            offset += _HEADER.size + length + _FOOTER_BYTES
    return offset


def _records(file: str, compression: str, offset: int) -> tf.data.Dataset:
    def read(start: tf.Tensor) -> tf.data.Dataset:
        records = tf.raw_ops.TFRecordDatasetV2(
            filenames=[file],
            compression_type=compression,
            buffer_size=_BUFFER_BYTES,
            byte_offsets=[start],
        )
        return tf.data.experimental.from_variant(records, tf.TensorSpec([], tf.string))

    start = tf.data.Dataset.from_tensors(tf.constant(offset, tf.int64))
    # TensorFlow cannot write this reader to a graph, so it is in a function.
    return start.flat_map(tf.autograph.experimental.do_not_convert(read))


def _count(records: tf.data.Dataset) -> int:
    zero = tf.constant(0, tf.int64)
    add = tf.autograph.experimental.do_not_convert(lambda count, _: count + 1)
    return int(records.reduce(zero, add).numpy())


def _following(file: str, corrupt: int) -> int | None:
    """Return the offset of the next record that has a valid header; None: there is none.

    TensorFlow's error has the offset of the data if that is corrupt, or else that of the header.
    """
    with tf.io.gfile.GFile(file, "rb") as opened:
        size = opened.size()
        data_of = corrupt - _HEADER.size
        if data_of >= 0:
            opened.seek(data_of)
            header = opened.read(_HEADER.size)
            if len(header) == _HEADER.size and _is_valid(header):
                end = int(corrupt + _HEADER.unpack(header)[0] + _FOOTER_BYTES)
                return end if end < size else None
        return _search(opened, corrupt + 1, size)


def _search(opened: Any, start: int, size: int) -> int | None:
    """Return the first offset from `start` on that has a record's header; None: there is none."""
    while start + _HEADER.size <= size:
        opened.seek(start)
        data = np.frombuffer(opened.read(_SEARCHED_BYTES + _HEADER.size - 1), np.uint8)
        for at in _headers(data):
            length, _ = _HEADER.unpack(data[at : at + _HEADER.size].tobytes())
            if start + at + _HEADER.size + length + _FOOTER_BYTES <= size:
                return start + int(at)
        start += _SEARCHED_BYTES
    return None


def _is_valid(header: bytes) -> bool:
    return bool(_headers(np.frombuffer(header, np.uint8)).size)


def _headers(data: NDArray[np.uint8]) -> NDArray[np.intp]:
    """Return the offsets in the data at which a length has its checksum behind it."""
    count = len(data) - _HEADER.size + 1
    if count < 1:
        return np.zeros(0, np.intp)
    crc = np.full(count, 0xFFFFFFFF, np.uint32)
    for byte in range(8):
        crc = _TABLE[(crc ^ data[byte : byte + count]) & 0xFF] ^ (crc >> np.uint32(8))
    crc = ~crc
    masked = ((crc >> np.uint32(15)) | (crc << np.uint32(17))) + np.uint32(0xA282EAD8)
    stored = np.zeros(count, np.uint32)
    for byte in range(4):
        stored |= data[8 + byte : 8 + byte + count].astype(np.uint32) << np.uint32(8 * byte)
    return np.flatnonzero(masked == stored)


def _table() -> NDArray[np.uint32]:
    """Return the table of CRC-32C, the checksum of TFRecords."""
    table = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        table = np.where(table & 1, np.uint32(0x82F63B78) ^ (table >> 1), table >> 1)
    return table.astype(np.uint32)


_TABLE = _table()
