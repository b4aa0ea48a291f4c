"""Iterators whose state can be saved, and restored in another process.

TensorFlow saves buffers, offsets in files and positions in random sequences. It does not save what
a Python function, a variable or a random op without a seed of its own has done, or what an op like
`snapshot` has written to files. So a dataset has such a state only if all of its ops are known to
restore it; see `find_problem`.

To save, TensorFlow waits for the functions that run. So each call has a deadline. After a call that
missed it, the iterator may be blocked, and its stream has to be opened again.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, TypeVar

import tensorflow as tf
import xxhash

from distributed_input.graph import native_ops, row_skips
from distributed_input.graph.definition import node_defs, python_code
from distributed_input.graph.definition.canonical import stable_bytes
from distributed_input.graph.definition.datasets import KNOWN, kind
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef
from distributed_input.graph.determinism import depends_on_order
from distributed_input.graph.row_skips import RowSkip
from distributed_input.worker.states.saved_state import StateError, within

PIPELINE = 8
"""Version of what a worker changes in a dataset. 2: it joins batches. 3: it sets their size. 4:
also that of batches with maps behind them, and of prefetch. 5: it pushes shards to sources. 6: maps
may run in the split's thread. 7: it gathers rows of arrays by batches. 8: maps that it adds have
their number of calls."""
_IGNORE_EXTERNAL_STATE = 1  # `find_problem` has checked it, except for constant tables
_RESTORE_SECONDS = 20.0  # no element is produced meanwhile
_PART_VARIANTS = 64  # written together, so that a state that is too large is noticed early
_LENGTH = struct.Struct("<Q")
# The input index of num_parallel_calls.
_CALLS = {"ParallelMap": -1, "MapAndBatch": -2}
_Result = TypeVar("_Result")


@dataclass(frozen=True)
class StateIdentity:
    """What a state belongs to, and what else the graph of a split shows.

    Attributes:
        key: hash of the graph with the seeds of an epoch, of the code of its Python functions, and
            of TensorFlow's version.
        problem: why TensorFlow cannot save the dataset's state, or "".
        parallel_calls: the largest `num_parallel_calls` of its maps; 0 if no map has a number:
            AUTOTUNE uses about as many calls as there are CPUs.
        skip: where the dataset can skip rows; None: it cannot.
        may_inline: whether its maps could run in the thread of the split, and do not.
        inline: whether its maps run in the thread of the split. States have it beside the key.
    """

    key: bytes
    problem: str
    parallel_calls: int = 0
    skip: RowSkip | None = None
    may_inline: bool = False
    inline: bool = False


def identify(graph_def: GraphDef, *values: object, batched: bool = False) -> StateIdentity:
    """Return the identity of a split's states.

    `values` is what the rows depend on besides the graph. Python functions may depend on the split,
    the seed and the epoch.
    """
    digest = xxhash.xxh3_128()
    digest.update(repr((PIPELINE, native_ops.library() is None, tf.__version__, *values)).encode())
    problem = find_problem(graph_def)  # it may be a Python function
    if problem:
        digest.update(repr(python_code.describe(graph_def)).encode())
    digest.update(stable_bytes(node_defs.copy_of(graph_def) if problem else graph_def))
    return StateIdentity(
        digest.digest(),
        problem,
        _parallel_calls(graph_def),
        row_skips.find(graph_def, batched),
    )


def find_problem(graph_def: GraphDef) -> str:
    """Return the op because of which a dataset has no state that can be saved, or ""."""
    library = node_defs.library(graph_def)
    for name, nodes in node_defs.scopes(graph_def).items():
        for node in nodes:
            if node.op in library:
                continue
            is_dataset = "Dataset" in node.op and kind(node.op) not in KNOWN
            if is_dataset or (name and (node.op in PYTHON_OPS or depends_on_order(node.op))):
                return f"{node.op} in {node_defs.readable_name(name)}" if name else str(node.op)
    return ""


def _parallel_calls(graph_def: GraphDef) -> int:
    nodes = node_defs.by_name(graph_def.node)
    maps = [node for node in graph_def.node if kind(node.op) in _CALLS]
    found = [node_defs.input_value(nodes, node, _CALLS[kind(node.op)]) for node in maps]
    return max((int(value) for value in found if value is not None and value > 0), default=0)


class SavableIterator:
    """An iterator of elements whose state can be saved.

    Attributes:
        fetched: number of elements returned so far.
    """

    def __init__(self, elements: Any, identity: StateIdentity) -> None:
        self._elements = elements
        self.key, self.problem = identity.key, identity.problem
        self.inline = identity.inline
        self.fetched = 0

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        element = next(self._elements)
        self.fetched += 1
        return element

    def save(self, max_bytes: int, timeout: float) -> bytes:
        """Return the state after the last element returned.

        Raises:
            StateTimeoutError: TensorFlow did not return in time.
            StateError: the state is larger, or TensorFlow cannot save it.
        """
        return _call(timeout, "save", lambda: _save(self._elements, max_bytes))

    def restore(self, data: bytes) -> None:
        """Continue after the element at which the state was saved: `data` is what `save` returned.

        Raises:
            StateTimeoutError: TensorFlow did not return in time.
            StateError: TensorFlow cannot restore it.
        """
        _call(_RESTORE_SECONDS, "restore", lambda: _restore(self._elements, data))


def _call(timeout: float, what: str, work: Callable[[], _Result]) -> _Result:
    try:
        return within(timeout, f"{what} a state", work)
    except StateError:
        raise
    except Exception as error:
        raise StateError(f"TensorFlow cannot {what} the state: {error}") from error


def _save(iterator: Any, max_bytes: int) -> bytes:
    state = tf.raw_ops.SerializeIterator(
        resource_handle=iterator._iterator_resource,  # noqa: SLF001 - there is no public method
        external_state_policy=_IGNORE_EXTERNAL_STATE,
    )
    parts: list[bytes] = []
    size = 0
    for start in range(0, state.shape[0], _PART_VARIANTS):
        part = tf.io.serialize_tensor(state[start : start + _PART_VARIANTS]).numpy()
        size += _LENGTH.size + len(part)
        if size > max_bytes:
            raise StateError(f"the state has more than {max_bytes} bytes")
        parts += [_LENGTH.pack(len(part)), part]
    return b"".join(parts)


def _restore(iterator: Any, data: bytes) -> None:
    parts = [tf.io.parse_tensor(part, tf.variant) for part in _split(data)]
    variants = [one for part in parts for one in tf.unstack(part)]  # TensorFlow cannot concat them
    tf.raw_ops.DeserializeIterator(
        resource_handle=iterator._iterator_resource,  # noqa: SLF001 - there is no public method
        serialized=tf.stack(variants),
    )


def _split(data: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(data):
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        yield data[at : at + length]
        at += length
