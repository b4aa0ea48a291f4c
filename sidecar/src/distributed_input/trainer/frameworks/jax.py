"""Batches as global JAX arrays, some of them on the devices before the loop requests them.

On CPUs, an array views the unit's shared memory if the memory is aligned, and keeps it alive. JAX
never writes to it: a donated argument of this kind is copied.
"""

from __future__ import annotations

import base64
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, TypeAlias

import numpy as np

from distributed_input.api.errors import ConfigError, DistributedInputError, PositionError
from distributed_input.api.proto import types_pb2
from distributed_input.rows.decode import decode_leaves
from distributed_input.rows.elements import ElementSpec
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.frameworks.lazy_epoch import LoopCounter

Input: TypeAlias = Any
"""A `trainer.input.Input`, which imports this module."""
_WIDE = frozenset(("int64", "uint64", "float64", "complex128"))


def import_jax() -> Any:
    """Return the module `jax`.

    Raises:
        ConfigError: JAX is not installed.
    """
    try:
        import jax
    except ModuleNotFoundError as error:
        if error.name != "jax":
            raise
        raise ConfigError(
            "JAX is not installed here: run `pip install jax` in the trainer's environment, or "
            "read numpy arrays with numpy()"
        ) from error
    return jax


class Placement:
    """Places the batches of an open job on devices.

    Args:
        jax: the module.
        consumer: a consumer whose job is open.
        sharding: the sharding of all components, or a prefix of the batch's structure with
            shardings; None: the default device.

    Raises:
        ConfigError: the structure of `sharding` is another one, or JAX does not know the batch's.
    """

    def __init__(self, jax: Any, consumer: Consumer, sharding: Any) -> None:
        self._jax = jax
        self._spec = consumer.spec
        self._opened = consumer.opened
        self._consumers = consumer.welcome.consumers
        self._shardings = _shardings(jax, consumer.spec, sharding)
        self._checked: set[int] = set()
        wide = [leaf.label for leaf in self._spec.leaves if leaf.dtype in _WIDE]
        if wide and not jax.config.jax_enable_x64:
            warnings.warn(
                f"JAX makes 32 bits of the 64 bits of {', '.join(wide)}: cast them in a map of the "
                "dataset, or set jax_enable_x64",
                stacklevel=4,
            )

    def place(self, batch: Any) -> Any:
        """Return a unit as nested arrays on devices. What JAX has no arrays for stays as it is."""
        rows = batch.rows if self._opened.unit_rows else None
        values = decode_leaves(self._spec, rows, batch.buffers)
        placed = [
            self._array(number, value)
            if isinstance(value, np.ndarray) and value.dtype != object
            else value
            for number, value in enumerate(values)
        ]
        return self._spec.unflatten(placed)

    def _array(self, number: int, value: Any) -> Any:
        sharding = self._shardings[number]
        if sharding is None:
            return self._jax.device_put(value)
        shape = value.shape
        if not sharding.is_fully_addressable and shape:
            shape = (len(value) * self._consumers, *shape[1:])
        if number not in self._checked:
            self._check(self._spec.leaves[number].label, sharding, shape)
            self._checked.add(number)
        return self._jax.make_array_from_process_local_data(sharding, value, shape)

    def _check(self, label: str, sharding: Any, shape: tuple[int, ...]) -> None:
        """Raise ConfigError if the processes' parts of this shape are not what they have read."""
        if not shape:
            return
        rows = shape[0]
        spans = {
            index[0].indices(rows)[:2]
            for index in sharding.addressable_devices_indices_map(shape).values()
        }
        local = sum(end - start for start, end in spans)
        expected = rows if sharding.is_fully_addressable else rows // self._consumers
        if local != expected:
            raise ConfigError(
                f"{label}: the sharding gives {local} of {rows} rows to the devices of this "
                f"process, which reads {expected}: divide the first dimension by the devices of "
                f"all {self._consumers} trainers"
            )
        is_divided = any(span != (0, rows) for span in spans)
        kept = self._opened.job.remainder not in (types_pb2.DROP, types_pb2.PAD)
        if is_divided and (kept or not self._opened.unit_rows):
            raise ConfigError(
                f"{label}: the sharding divides the rows among devices, and the last batch of an "
                "epoch may have any number: set spec.batching.remainder to Drop or Pad, and a "
                "globalBatchSize"
            )


def _shardings(jax: Any, spec: ElementSpec, sharding: Any) -> list[Any]:
    """Return the sharding of each leaf."""
    found: list[Any] = [None] * len(spec.leaves)
    if sharding is None:
        return found
    numbers = spec.unflatten(list(range(len(spec.leaves))))
    if sorted(jax.tree.leaves(numbers), key=repr) != sorted(range(len(found)), key=repr):
        raise ConfigError(
            "JAX does not know the structure of the batches: let the dataset return dicts, tuples "
            "or lists"
        )
    try:
        parts = jax.tree.structure(sharding).flatten_up_to(numbers)
    except (ValueError, TypeError) as error:
        raise ConfigError(f"sharding has another structure than the batches: {error}") from error
    for one, part in zip(jax.tree.leaves(sharding), parts, strict=True):
        for number in jax.tree.leaves(part):
            found[number] = one
    return found


class JaxBatches:
    """Iterates over the batches of an input as JAX arrays, epoch after epoch; see `Input.jax`."""

    def __init__(
        self,
        data: Input,
        begin: Callable[[LoopCounter], Iterator[Any]],
        has_arrived: Callable[[], bool],
        prefetch: int,
    ) -> None:
        self._data = data
        self._begin = begin
        self._has_arrived = has_arrived
        self._prefetch = prefetch
        self._counter = LoopCounter()
        self._generation = -1
        self._epoch: Iterator[Any] | None = None
        self._has_failed = False
        self._ahead: deque[Any] = deque()

    def __iter__(self) -> JaxBatches:
        """Continue within the epoch. After its end, the next batch is of the next epoch.

        After an error, it is the one behind the last batch that was returned.
        """
        if self._counter.ended or self._has_failed:
            self._drop()
        return self

    def __next__(self) -> Any:
        """Return the next batch. At the end of the epoch, raise StopIteration until `iter`."""
        if self._counter.ended:
            raise StopIteration
        if self._epoch is None:
            self._epoch = self._begin(self._counter)
            self._generation = self._data.generation
        if self._counter.is_invalid or self._data.generation != self._generation:
            self._ahead.clear()  # the epoch raises why
        self._counter.fetched += 1
        if not self._ahead:
            try:
                self._ahead.append(next(self._epoch))
            except StopIteration:
                self._counter.ended = True
                raise
            except DistributedInputError:
                self._has_failed = True
                raise
        self._fetch_ahead()
        return self._ahead.popleft()

    def _fetch_ahead(self) -> None:
        """Fetch what has arrived, without a wait: other trainers may wait for this one's step."""
        assert self._epoch is not None
        while len(self._ahead) <= self._prefetch and self._has_arrived():
            try:
                self._ahead.append(next(self._epoch))
            except (StopIteration, DistributedInputError):
                return  # again behind the batches that were fetched

    def _drop(self) -> None:
        self._counter, self._epoch, self._has_failed = LoopCounter(), None, False
        self._ahead.clear()

    def get_state(self) -> bytes:
        """Return the position behind the last batch that was returned, as ASCII text."""
        return base64.b64encode(self._data.position())

    def set_state(self, state: bytes) -> None:
        """Continue at a position that `get_state` returned in this or another process.

        Raises:
            PositionError: it is not such a position.
        """
        try:
            position = base64.b64decode(state, validate=True)
        except (ValueError, TypeError) as error:
            raise PositionError(
                f"not what get_state() returned ({error}): restore another checkpoint"
            ) from error
        self._data.restore(position)
        self._drop()

    def start_prefetch(self) -> None:
        """Do nothing: Grain's checkpoint handler calls it. The first request begins to read."""
