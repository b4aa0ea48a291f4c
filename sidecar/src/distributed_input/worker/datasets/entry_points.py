"""Entry points: import the function that a job names, and call it for one split."""

from __future__ import annotations

import contextlib
import importlib
import json
import random
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf

from distributed_input.api.errors import ConfigError, DatasetFnError, SpecError, UnavailableError
from distributed_input.api.hashing import mix
from distributed_input.api.proto import types_pb2
from distributed_input.graph import user_code
from distributed_input.graph.sequence_packing import pack
from distributed_input.graph.user_code import SplitInputContext
from distributed_input.order import jobs
from distributed_input.order.indexed import Indexed, has_index

_SEED_MASK = (1 << 31) - 1

_MAX_WAIT_SECONDS = 60.0  # for one call of an entry point


# Entry points are called one at a time: they run under the process's global seed.
_calling = threading.Lock()
_running: list[tuple[str, float]] = []  # the call, and when it began


@contextlib.contextmanager
def _alone(what: str) -> Iterator[None]:
    """Wait for the other calls.

    Raises:
        UnavailableError: one other call takes longer than `_MAX_WAIT_SECONDS`.
    """
    while not _calling.acquire(timeout=1.0):
        for running, since in _running.copy():
            seconds = time.monotonic() - since
            if seconds > _MAX_WAIT_SECONDS:
                raise UnavailableError(
                    f"{running} has been running for {seconds:.0f} s, and a worker calls one at a "
                    "time. Check what it reads, for example a file system that does not respond."
                )
    try:
        _running[:] = [(what, time.monotonic())]
        yield
    finally:
        _running.clear()
        _calling.release()


_allowed: list[str] = []
"""Modules that may be imported as entry points, for the life of the process. Empty: all."""


def allow_only(modules: Iterable[str]) -> None:
    """Allow only functions of these modules, and below them, as entry points. Empty: all.

    A process calls it once, before it serves. Clients name entry points.
    """
    _allowed[:] = modules


def split_context(
    job: types_pb2.Job, seed: int, epoch: int, split: int, splits: int
) -> SplitInputContext:
    """Return the input context of one split."""
    return SplitInputContext(
        splits,
        split,
        lambda global_batch_size: jobs.partitions_of_draft(job, global_batch_size),
        seed=mix(seed, epoch) & _SEED_MASK,
        epoch=epoch,
        source=job.entry_point.source,
        batch=job.global_batch_size,
    )


def call(
    entry: types_pb2.EntryPoint,
    context: SplitInputContext,
    seed: int,
    functions_seeded: bool = False,
) -> Any:
    """Call an entry point for one split, with seeds that are the same for all splits.

    Return a tf.data.Dataset, an iterable of elements, or an `Indexed`. The seed of the context
    becomes the seed of Python and numpy, which the graph does not contain. `seed` is that of
    TensorFlow. It must not depend on the epoch if `reseed` adds the epoch later. With
    `functions_seeded`, it also applies in functions that the dataset maps.

    Raises:
        ConfigError: the function does not exist.
        DatasetFnError: the function raised, or called sys.exit. The message has its traceback.
        UnavailableError: another call takes very long.
        SpecError: the function did not return a dataset.
    """
    function = load(entry)
    arguments = json.loads(entry.args_json or "{}")
    unseeded = contextlib.nullcontext() if functions_seeded else user_code.functions_unseeded()
    what = f"entry point {entry.target} for split {context.input_pipeline_id}"
    with _alone(what), user_code.fixed_randomness(seed & _SEED_MASK), unseeded:
        random.seed(context.seed)
        np.random.seed(context.seed)
        before, place = _random_state(), _place(context)
        context.varies = context.knows_split = False  # reset: the lines above read the context
        with user_code.user_errors(f"entry point {entry.target}", place, exits=True):
            dataset = function(context, **arguments)
            if callable(dataset) and not isinstance(dataset, tf.data.Dataset):
                dataset = dataset()
        context.varies = context.varies or _random_state() != before
    if has_index(dataset):
        dataset = Indexed(dataset)
    if isinstance(dataset, Indexed):
        check_whole(entry, context, dataset)
    if entry.HasField("packing"):
        return _pack(entry, dataset, context.rows_of_partition())
    if isinstance(dataset, (tf.data.Dataset, Indexed, Iterable)):
        return dataset
    raise SpecError(
        f"entry point {entry.target} returned {type(dataset).__name__}. Return a tf.data.Dataset, "
        "an iterable of (nested) numpy arrays, or an object with __len__ and __getitem__."
    )


def _pack(entry: types_pb2.EntryPoint, dataset: Any, rows_per_step: int) -> tf.data.Dataset:
    if not isinstance(dataset, tf.data.Dataset):
        raise SpecError(
            f"spec.packing needs a tf.data.Dataset, and entry point {entry.target} returned "
            f"{type(dataset).__name__}. Return a tf.data.Dataset, for example by "
            "tf.data.Dataset.from_generator, or pack the rows in the function and remove "
            "spec.packing"
        )
    packing = entry.packing
    return pack(
        dataset,
        packing.length,
        packing.method,
        packing.open_sequences,
        balance_window=packing.balance_window,
        rows_per_step=rows_per_step,
    )


def check_whole(entry: types_pb2.EntryPoint, context: SplitInputContext, dataset: Indexed) -> None:
    """Raise SpecError if a dataset that the splits divide may be the part of one split."""
    if context.knows_split:
        raise SpecError(
            f"entry point {entry.target} returned {type(dataset.source).__name__}, which the splits"
            " divide by its index, and it read the split from its context. Return the whole dataset"
            " for each split, or an iterable of the rows of the split"
        )


def _place(context: SplitInputContext) -> str:
    """Return the split for an error message. "" for split 0: it is the first, and any can fail."""
    split = context.input_pipeline_id
    return f"split {split} of {context.num_input_pipelines}" if split else ""


def _random_state() -> tuple[Any, ...]:
    """Return the state of the random generators of Python and numpy."""
    kind, key, *rest = np.random.get_state(legacy=True)
    return random.getstate(), kind, bytes(np.asarray(key)), *rest


def load(entry: types_pb2.EntryPoint) -> Callable[..., Any]:
    """Import an entry point's module; return the function.

    Raises:
        ConfigError: the module or the function does not exist, or is not allowed.
        DatasetFnError: the module cannot be imported. The message has its traceback.
    """
    module_name, _, attribute = entry.target.partition(":")
    _check_module(module_name)
    if _allowed and entry.path not in ("", *sys.path):
        raise ConfigError(
            f"spec.dataset.entryPoint.source.path: this worker may not import from "
            f"{entry.path}: remove the path, because the InputPolicy limits modules"
        )
    if entry.path and entry.path not in sys.path:
        sys.path.insert(0, entry.path)
    value: Any = _import(module_name, entry.path)
    for name in attribute.split("."):
        value = getattr(value, name, None)
        if value is None:
            raise ConfigError(
                f"spec.dataset.entryPoint.function: module {module_name} has no "
                f"{attribute!r}; it has {', '.join(_functions(module_name)) or 'no functions'}"
            )
    if not callable(value):
        raise ConfigError(f"spec.dataset.entryPoint.function: {entry.target} is not a function")
    _check_module(getattr(value, "__module__", None) or "builtins")
    function: Callable[..., Any] = value
    return function


def _check_module(name: str) -> None:
    """Raise ConfigError if a function of this module is not allowed as an entry point.

    Also for a function that an allowed module has imported, such as `digits:os.system`.
    """
    if _allowed and not any(f"{name}.".startswith(f"{one}.") for one in _allowed):
        raise ConfigError(
            f"spec.dataset.entryPoint.function: this worker may not call functions of "
            f"module {name}: use one of the modules {', '.join(_allowed)}, or ask the "
            "administrator to add it to spec.modules of the InputPolicy"
        )


def _import(module_name: str, path: str) -> Any:
    try:
        return importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        if error.name and not module_name.startswith(error.name):
            raise DatasetFnError(
                f"spec.dataset.entryPoint.function: module {module_name} imports "
                f"{error.name}, which is not installed in the worker. Install it in the "
                "worker's image."
            ) from error
        place = path or "the worker's Python path"
        raise ConfigError(
            f"spec.dataset.entryPoint.function: no module {module_name!r} in {place}: check "
            "the name, and spec.dataset.entryPoint.source"
        ) from error
    except (Exception, SystemExit) as error:
        with user_code.user_errors(f"module {module_name}", exits=True):
            raise error


def _functions(module_name: str) -> list[str]:
    module = sys.modules[module_name]
    return [
        name
        for name, value in vars(module).items()
        if callable(value) and getattr(value, "__module__", "") == module_name
    ][:10]
