"""Units of shared memory as PyTorch tensors, without a copy. Imports PyTorch when it is used.

PyTorch has no read-only memory, and warns if a tensor views a read-only array. The memory itself is
writable (see `link/trainer/slots.py`): a program that writes to a tensor changes only its batch. So
tensors are copies if other processes read the same batches.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.link.trainer.slots import Batch
from distributed_input.rows.decode import Ragged, Sparse, decode_leaves
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks import loops
from distributed_input.trainer.frameworks.lazy_epoch import LazyEpoch, LoopCounter

Input: TypeAlias = Any
"""A `trainer.input.Input`, which imports this module."""
Array = npt.NDArray[Any]

_POSITION = "position"
_EXCHANGED = frozenset(
    "bool uint8 int8 int16 int32 int64 float16 float32 float64 complex64 complex128".split()
)
"""The types that `from_numpy` of every PyTorch accepts."""
_VIEWED = frozenset(
    "uint16 uint32 uint64 bfloat16"
    " float8_e4m3fn float8_e5m2 float8_e4m3fnuz float8_e5m2fnuz".split()
)
"""The types that pass as integers of their width, if this PyTorch has them."""


def import_torch() -> Any:
    """Return the module `torch`.

    Raises:
        ConfigError: PyTorch is not installed.
    """
    try:
        import torch
    except ModuleNotFoundError as error:
        if error.name != "torch":
            raise
        raise ConfigError(
            "PyTorch is not installed here: run `pip install torch` in the trainer's environment, "
            "or read numpy arrays with numpy()"
        ) from error
    return torch


def check(torch: Any, spec: ElementSpec) -> None:
    """Raise ConfigError if this PyTorch has no type for a leaf. Strings stay numpy arrays."""
    for leaf in spec.leaves:
        known = leaf.dtype in _VIEWED and hasattr(torch, leaf.dtype)
        if not (known or leaf.is_string or leaf.dtype in _EXCHANGED):
            raise ConfigError(
                f"{leaf.label}: PyTorch {torch.__version__} has no type {leaf.dtype}. Cast it in a "
                "map of the dataset, install a PyTorch that has it, or read numpy arrays with "
                "numpy()"
            )


def decoder(torch: Any, spec: ElementSpec, whole: bool) -> Callable[[Batch], Any]:
    """Return the function from a unit to nested tensors. `whole`: a unit is one whole element."""

    def decode(batch: Batch) -> Any:
        values = decode_leaves(spec, None if whole else batch.rows, batch.buffers)
        leaves = zip(spec.leaves, values, strict=True)
        return spec.unflatten([_leaf(torch, leaf, value) for leaf, value in leaves])

    return decode


def reader(torch: Any, consumer: Consumer) -> Callable[[int], Iterator[Any]]:
    """Return the function from an epoch's generation to its batches, of an open job.

    Raises:
        ConfigError: see `check`.
    """
    check(torch, consumer.spec)
    decode = decoder(torch, consumer.spec, whole=not consumer.opened.unit_rows)
    return functools.partial(consumer.decoded, decode, writable=True)


@functools.cache
def _dataset_class(torch: Any) -> Any:
    """Return the class of `dataset`, which needs PyTorch."""

    class Batches(torch.utils.data.IterableDataset):
        def __init__(self, data: Input, epoch: Callable[[LoopCounter], Iterator[Any]]) -> None:
            self._data = data
            self._epoch = epoch
            self._last: LoopCounter | None = None

        def __iter__(self) -> Iterator[Any]:
            if torch.utils.data.get_worker_info() is not None:
                raise ConfigError(
                    f"input {self._data.name} cannot be read in the processes of a DataLoader: the "
                    "workers of the input already do their work. Use DataLoader(..., "
                    "batch_size=None, num_workers=0)"
                )
            return LazyEpoch(self._begin)

        def _begin(self, counter: LoopCounter) -> Iterator[Any]:
            counter.ahead = loops.batches_ahead(self._data.name)
            last = self._last
            if last is not None and last.ahead and not last.used:
                self._data.restore(self._data.position())  # the loop has only looked at this epoch
            self._last = counter
            return self._epoch(counter)

        def state_dict(self) -> dict[str, bytes]:
            return {_POSITION: self._data.position()}

        def load_state_dict(self, state: Mapping[str, Any]) -> None:
            if _POSITION not in state:
                raise PositionError(
                    f"the state has no {_POSITION!r}, but {sorted(state)}: load what state_dict() "
                    "of this dataset returned"
                )
            self._data.restore(state[_POSITION])

        def __reduce__(self) -> Any:
            return self._data.__reduce__()

    return Batches


def dataset(torch: Any, data: Input, epoch: Callable[[LoopCounter], Iterator[Any]]) -> Any:
    """Return an input as an IterableDataset whose items are batches; see `Input.torch`.

    `epoch` begins the next epoch, with a counter of its loop, and returns its batches.
    """
    return _dataset_class(torch)(data, epoch)


def is_dataset(value: Any) -> bool:
    """Return whether `dataset` has made the value."""
    return isinstance(value, _dataset_class(import_torch()))


def _leaf(torch: Any, leaf: Leaf, value: Any) -> Any:
    """Return a decoded leaf with tensors in place of the arrays of numbers."""
    if isinstance(value, Ragged):
        splits = (tensor(torch, leaf.row_splits_dtype, one) for one in value.row_splits)
        return Ragged(tensor(torch, leaf.dtype, value.values), tuple(splits))
    if isinstance(value, Sparse):
        indices, shape = (tensor(torch, "int64", x) for x in (value.indices, value.dense_shape))
        return Sparse(indices, tensor(torch, leaf.dtype, value.values), shape)
    return tensor(torch, leaf.dtype, value)


def tensor(torch: Any, dtype: str, array: Array) -> Any:
    """Return an array as a tensor of the same memory, which it keeps alive."""
    if dtype == "string":
        return array
    if dtype in _VIEWED:
        array = array.view(f"i{array.itemsize}")
    if not array.flags.writeable:
        array = np.asarray(_Writable(array))
    made = torch.from_numpy(array)
    return made.view(getattr(torch, dtype)) if dtype in _VIEWED else made


class _Writable:
    """The memory of a read-only array, which it keeps alive, as writable memory."""

    __slots__ = ("__array_interface__", "_array")

    def __init__(self, array: Array) -> None:
        self._array = array
        address = array.__array_interface__["data"][0]
        self.__array_interface__ = {**array.__array_interface__, "data": (address, False)}
