"""Graphs without their large constants, which are stored once.

A trainer's graphs are sent in this form. On a worker, large arrays of numbers become files that all
splits map into memory. For a dataset with 90 MB of arrays, opening a split takes 10 ms instead of
1 s and 90 MB of memory.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import os
import re
import tempfile
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import tensorflow as tf
from google.protobuf.message import DecodeError
from tensorflow.python.framework import tensor_util

from distributed_input.api.errors import SpecError
from distributed_input.api.proto import types_pb2
from distributed_input.graph.definition import node_defs
from distributed_input.graph.definition.node_defs import FunctionDef, GraphDef, NodeDef
from distributed_input.runtime import logs

_NUMBER, _NAME, _SHAPE = (f"_distributed_input_constant_{it}" for it in ("number", "name", "shape"))
_LARGE = 64 << 10
_MAX_BYTES = (1 << 31) - 1
_HASH = re.compile("[0-9a-f]{64}")
_log = logs.get("graph.packing")
_ZLIB_LEVEL = 1


def pack(graph_defs: Sequence[GraphDef], shard_policy: str = "") -> types_pb2.GraphDataset:
    """Pack the graphs of all splits, or one graph for all splits, into a message.

    Equal graphs give equal messages. Constants of 64 KiB and more are stored once.
    """
    out = types_pb2.GraphDataset(tf_version=tf.__version__, shard_policy=shard_policy)
    numbers: dict[str, int] = {}
    for graph_def in graph_defs:
        bare = node_defs.copy_of(graph_def)
        for node, name, data in _large_constants(bare):
            if name not in numbers:
                numbers[name] = len(out.constants)
                out.constants.append(zlib.compress(data, _ZLIB_LEVEL))
            node.attr[_NUMBER].i = numbers[name]
            _remove_value(node, name)
        out.graphs.append(zlib.compress(node_defs.to_bytes(bare), _ZLIB_LEVEL))
    return out


def load_bare(dataset: types_pb2.GraphDataset, split: int) -> GraphDef:
    """Return the graph of a split without its large constants: fast to copy and edit.

    Raises:
      SpecError: the dataset has no graph for the split, or a damaged one.
    """
    several = len(dataset.graphs) > 1
    if not dataset.graphs or (several and split >= len(dataset.graphs)):
        raise SpecError(f"the dataset has {len(dataset.graphs)} graphs and none for split {split}")
    data = dataset.graphs[split if several else 0]
    with _damage_reported():
        return tf.compat.v1.GraphDef.FromString(_decompressed(data))


def without_arrays(graph_def: GraphDef) -> GraphDef:
    """Return a graph with hashes in place of its large constants, wherever they are stored."""
    out = node_defs.copy_of(graph_def)
    for node, name, _ in _large_constants(out):
        _remove_value(node, name)
    for node in _constants(out):
        if _NAME in node.attr:
            node.attr.pop("value", None)
            node.attr.pop(_NUMBER, None)
    return out


def store_arrays(
    graph_def: GraphDef, is_shared: Callable[[str], bool], folder: Path | None = None
) -> GraphDef:
    """Return a graph with names in place of its large arrays of numbers, and write their files.

    The given graph loses its arrays, too. If a file cannot be written, the array stays. `is_shared`
    returns whether an array has to have a file, by its name. The files stay as long as the folder.
    `restore` completes the graph.
    """
    for node, name, data in _large_constants(graph_def):
        if not _is_number(node) or not is_shared(name):
            continue
        path = (folder or _own_folder()) / name
        try:
            if not path.exists():
                _write(path, data)
        except OSError as error:
            _log.warning("cannot store an array for several splits", cause=str(error))
            continue
        _remove_value(node, name)
    # A protobuf message keeps the memory of what was removed from it.
    return node_defs.copy_of(graph_def)


def has_files(graph_def: GraphDef, folder: Path | None = None) -> bool:
    """Return whether the files of a graph of `store_arrays` exist."""
    names = [node.attr[_NAME].s.decode() for node in _constants(graph_def) if _NAME in node.attr]
    return all(((folder or _own_folder()) / name).exists() for name in names)


def restore(
    graph_def: GraphDef,
    dataset: types_pb2.GraphDataset | None = None,
    folder: Path | None = None,
) -> None:
    """Insert the large constants into a graph without them, in place, so that it can run.

    The graph is one of `load_bare`, with its message, or of `store_arrays`. The folder has the
    arrays of numbers, as files named by content. It must exist as long as datasets of the graph.
    None: a temporary folder of this process.

    Raises:
      SpecError: the graph or its constants are damaged.
    """
    with _damage_reported():
        _insert_constants(graph_def, dataset, folder or _own_folder())
    for function in graph_def.library.function:
        _rename_outputs(function)


def is_stored(node: NodeDef) -> bool:
    """Return whether an ImmutableConst is one of `restore`: its file is named by its content."""
    return bool(_HASH.fullmatch(os.path.basename(node.attr["memory_region_name"].s.decode())))


def _insert_constants(
    graph_def: GraphDef, dataset: types_pb2.GraphDataset | None, folder: Path
) -> None:
    for node in _constants(graph_def):
        if _NAME not in node.attr:
            continue
        data = b""
        if _NUMBER in node.attr:
            assert dataset is not None
            data = dataset.constants[node.attr.pop(_NUMBER).i]
        name, shape = node.attr.pop(_NAME).s.decode(), node.attr.pop(_SHAPE).shape
        if _is_number(node):
            if not _HASH.fullmatch(name):  # a trainer sends it, and it becomes a path
                raise ValueError("a constant's name is not its hash")
            path = folder / name
            if data and not path.exists():
                content = _decompressed(data)
                if hashlib.sha256(content).hexdigest() != name:  # other datasets may use the file
                    raise ValueError("a constant does not have the hash in its name")
                _write(path, content)
            node.op = "ImmutableConst"
            node.attr["shape"].shape.CopyFrom(shape)
            node.attr["memory_region_name"].s = str(path).encode()
        else:
            node.attr["value"].tensor.ParseFromString(_decompressed(data))


@contextlib.contextmanager
def _damage_reported() -> Iterator[None]:
    """Raise SpecError in place of the errors that damaged bytes cause."""
    try:
        yield
    except (DecodeError, LookupError, TypeError, ValueError, zlib.error) as error:
        raise SpecError(
            f"the dataset's graph is damaged: {error}. Use the same release of distributed-input "
            "in trainers and workers"
        ) from error


def _decompressed(data: bytes) -> bytes:
    """Return the content of at most 2 GiB, which a message of protobuf may have."""
    stream = zlib.decompressobj()
    content = stream.decompress(data, _MAX_BYTES)
    if not stream.eof:
        raise ValueError(f"it is cut off, or has more than {_MAX_BYTES} bytes")
    return content


def _rename_outputs(function: FunctionDef) -> None:
    """Use the name of ImmutableConst's output. In functions, inputs have names of outputs."""
    files = {node.name for node in function.node_def if node.op == "ImmutableConst"}

    def renamed(name: str) -> str:
        source, output, index = (*name.split(":"), "", "")[:3]
        return f"{source}:tensor:{index}" if source in files and output == "output" else name

    for node in function.node_def:
        node.input[:] = [renamed(name) for name in node.input]
    for key in function.ret:
        function.ret[key] = renamed(function.ret[key])


def _remove_value(node: NodeDef, name: str) -> None:
    node.attr[_NAME].s = name.encode()
    node.attr[_SHAPE].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
    node.attr.pop("value")


def _is_number(node: NodeDef) -> bool:
    dtype = tf.dtypes.as_dtype(node.attr["dtype"].type)
    return bool(dtype.is_bool or dtype.is_integer or dtype.is_floating or dtype.is_complex)


def _write(path: Path, data: bytes) -> None:
    tensor = tf.make_tensor_proto(0)
    tensor.ParseFromString(data)
    # Rename a complete file: other threads may look for it.
    part = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        part.write_bytes(tensor.tensor_content or tensor_util.MakeNdarray(tensor).tobytes())
        part.replace(path)
    finally:
        part.unlink(missing_ok=True)


_creating = threading.Lock()


@functools.lru_cache(maxsize=1)
def _temporary_folder() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="distributed-input-")


def _own_folder() -> Path:
    with _creating:  # the cache may call a function twice
        return Path(_temporary_folder().name)


def _large_constants(graph_def: GraphDef) -> Iterator[tuple[NodeDef, str, bytes]]:
    """Yield the nodes of large constants, the hashes of their values, and the values."""
    for node in _constants(graph_def):
        tensor = node.attr["value"].tensor
        if tensor.ByteSize() >= _LARGE:
            data = node_defs.to_bytes(tensor)
            yield node, hashlib.sha256(data).hexdigest(), data


def _constants(graph_def: GraphDef) -> Iterator[NodeDef]:
    return (node for node in node_defs.all_nodes(graph_def) if node.op == "Const")
