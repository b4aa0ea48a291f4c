"""Calling the user's dataset_fn so that its result depends on nothing but its context.

Whatever is random while the function runs (a list of files shuffled in Python, seeds that
TensorFlow draws for ops without any) must be the same for every split, or a shuffle before a
shard would repeat rows and drop others. Afterwards the process goes on as if nothing had happened.
"""

from __future__ import annotations

import contextlib
import random
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context
from tensorflow.python.framework import ops, random_seed

from distributed_input.api.errors import DatasetFnError, DistributedInputError
from distributed_input.tfdata.input_context import SplitInputContext

_SEED = 1_597_463_007  # any, but always the same: epochs and jobs differ by `seeds.reseed`


def call_dataset_fn(dataset_fn: Callable[..., Any], context: SplitInputContext) -> tf.data.Dataset:
    """The dataset of one split.

    Raises:
      DatasetFnError: the function raised (its exception is the cause, the message has its lines),
        or returned something else.
    """
    split = f"split {context.input_pipeline_id} of {context.num_input_pipelines}"
    with fixed_randomness(_SEED), functions_unseeded(), tf.init_scope():
        with user_errors(f"dataset_fn for {split}"):
            dataset = dataset_fn(context)
    if not isinstance(dataset, tf.data.Dataset):
        raise DatasetFnError(
            f"dataset_fn returned a {type(dataset).__name__} for {split}: it must return a"
            " tf.data.Dataset"
        )
    return dataset


@contextlib.contextmanager
def fixed_randomness(seed: int) -> Iterator[None]:
    """Seeds Python, numpy and TensorFlow with 31 bits, and puts back what they were."""
    eager: Any = tf_context.context()
    before = (eager._seed, getattr(eager, "_rng", None))  # noqa: SLF001
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    try:
        yield
    finally:
        # Not set_seed: it would start the caller's sequence from its beginning.
        eager._seed, eager._rng = before  # noqa: SLF001
        random.setstate(python)
        np.random.set_state(numpy)


@contextlib.contextmanager
def functions_unseeded() -> Iterator[None]:
    """Keeps the fixed seed out of functions that are traced.

    TensorFlow would number the random ops of each function from 0, so that the first ops of two
    maps would share their randomness: flip and brightness in step. Without seeds they are told
    apart by `reseed`. Enter it within `fixed_randomness`.
    """
    original = random_seed.get_seed
    fixed = tf_context.global_seed()

    def get_seed(op_seed: Any) -> Any:
        in_function = not tf.executing_eagerly() and ops.get_default_graph().seed == fixed
        return (None, None) if op_seed is None and in_function else original(op_seed)

    random_seed.get_seed = get_seed
    try:
        yield
    finally:
        random_seed.get_seed = original


@contextlib.contextmanager
def user_errors(what: str) -> Iterator[None]:
    """Errors of the user's code as DatasetFnError, with the lines where they happened."""
    try:
        yield
    except (DistributedInputError, GeneratorExit):
        raise
    except Exception as error:
        text = error.message if isinstance(error, tf.errors.OpError) else str(error)
        raise DatasetFnError(
            f"{what} failed: {type(error).__name__}: {text}\n{_lines_of(error)}"
        ) from error


def _lines_of(error: BaseException) -> str:
    """Where the user's code was, innermost last; all there is if none of it is the user's."""
    frames = traceback.extract_tb(error.__traceback__)
    library = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), sys.prefix)
    own = __file__.rsplit("/", 2)[0]
    users = [
        frame
        for frame in frames
        if not frame.filename.startswith((*library, own, "<"))
        and "site-packages" not in frame.filename
    ]
    return "".join(traceback.format_list(users or list(frames[1:]))).rstrip()
