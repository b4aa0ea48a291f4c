"""Calls of the user's dataset_fn whose result depends on the input context only.

Random values in the function, such as a list of files shuffled in Python or the seeds that
TensorFlow draws for unseeded ops, must be the same for every split. Otherwise a shuffle before a
shard would repeat rows and drop others. Afterwards, the random state of the process is restored.
"""

from __future__ import annotations

import contextlib
import random
import re
import sys
import sysconfig
import traceback
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context as tf_context
from tensorflow.python.framework import ops, random_seed

from distributed_input.api.errors import ConfigError, DatasetFnError, DistributedInputError
from distributed_input.order import splits as assignment

_NODE = re.compile(r"\{\{function_node [^}]*\}\} ")
"""TensorFlow's name of the op that runs the dataset, which is always the same."""
_SEED = 1_597_463_007  # arbitrary, but constant: `seeds.reseed` adds the job and the epoch


def call_dataset_fn(dataset_fn: Callable[..., Any], context: SplitInputContext) -> tf.data.Dataset:
    """Return the dataset of one split.

    Raises:
      DatasetFnError: the function raised an exception, which is the cause, or did not return a
        dataset. The message contains the user's lines.
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
    """Seed Python, numpy and TensorFlow with 31 bits, and restore their states at the end.

    And PyTorch, if it is imported: its `random_split` must divide a dataset alike in all splits.
    """
    torch = sys.modules.get("torch")
    before_torch = torch.get_rng_state() if torch is not None else None
    eager: Any = tf_context.context()
    before = (eager._seed, getattr(eager, "_rng", None))  # noqa: SLF001
    python, numpy = random.getstate(), np.random.get_state()
    random.seed(seed)
    np.random.seed(seed)
    tf.random.set_seed(seed)
    if torch is not None:
        torch.manual_seed(seed)
    try:
        yield
    finally:
        if torch is not None:
            torch.set_rng_state(before_torch)
        # Not set_seed: it would restart the caller's sequence.
        eager._seed, eager._rng = before  # noqa: SLF001
        random.setstate(python)
        np.random.set_state(numpy)


@contextlib.contextmanager
def functions_unseeded() -> Iterator[None]:
    """Leave random ops in traced functions unseeded; use it within `fixed_randomness`.

    With the fixed seed, TensorFlow would number the random ops of each function from 0, and the
    first ops of two maps would draw the same numbers. `reseed` gives unseeded ops different seeds.
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
def user_errors(what: str, place: str = "", exits: bool = False) -> Iterator[None]:
    """Raise errors of the user's code as DatasetFnError, with the lines that caused them.

    `what` names the code. `place` is what it ran for, and ends the first line of the message. With
    `exits`, SystemExit is an error too. It ends only the thread in a worker.
    """
    try:
        yield
    except DistributedInputError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, SystemExit) and not exits:
            raise
        text = error.message if isinstance(error, tf.errors.OpError) else str(error)
        first, end, rest = _NODE.sub("", text).partition("\n")
        place = f" ({place})" if place else ""
        raise DatasetFnError(
            f"{what} failed: {type(error).__name__}: {first}{place}{end}{rest}\n{_lines_of(error)}"
        ) from error


def is_library(filename: str) -> bool:
    """Return whether a source file belongs to Python, to an installed package or to this one."""
    library = (sysconfig.get_path("purelib"), sysconfig.get_path("stdlib"), sys.prefix)
    return filename.startswith((*library, "<")) or "site-packages" in filename or is_own(filename)


def is_own(filename: str) -> bool:
    """Return whether a source file belongs to this package."""
    return filename.startswith(__file__.rsplit("/", 2)[0] + "/")


def _lines_of(error: BaseException) -> str:
    """Return the user's lines of the traceback, innermost last, or all lines if it has none."""
    frames = traceback.extract_tb(error.__traceback__)
    users = [frame for frame in frames if not is_library(frame.filename)]
    return "".join(traceback.format_list(users or list(frames[1:]))).rstrip()


class SplitInputContext(tf.distribute.InputContext):
    """A split as an input pipeline.

    `num_input_pipelines` is the number of splits, and `input_pipeline_id` is the index of this one.
    `num_replicas_in_sync` is always 1: a dataset must not depend on the trainers. `varies`: the
    dataset may differ between epochs, because `seed` or `epoch` was read. `knows_split`: it may
    differ between splits, because the split was read. `global_batch_size` is the argument of
    `get_per_replica_batch_size`; None before the first call. `source`: name of the source of a
    mixture, of which this is a split; "" without a mixture.
    """

    def __init__(
        self,
        num_splits: int,
        split: int,
        partitions: int | Callable[[int], int],
        seed: int = 0,
        epoch: int = 0,
        source: str = "",
        batch: int = 0,
    ) -> None:
        """Create the context of one split.

        `partitions` is the job's number of partitions, or returns it for a global batch size.
        `batch` is the global batch size of the job; 0: dataset_fn determines it.
        """
        super().__init__(num_splits, split, 1)
        self._partitions = partitions
        self._batch = batch
        self._seed = seed
        self._epoch = epoch
        self.source = source
        self.varies = False
        self.knows_split = False
        self.global_batch_size: int | None = None

    @property
    def num_input_pipelines(self) -> int:
        """The number of splits."""
        self.knows_split = True
        splits: int = super().num_input_pipelines
        return splits

    @property
    def input_pipeline_id(self) -> int:
        """The index of this split."""
        self.knows_split = True
        split: int = super().input_pipeline_id
        return split

    @property
    def seed(self) -> int:
        """The seed of the job and the epoch, for the user's own random numbers."""
        self.varies = True
        return self._seed

    @property
    def epoch(self) -> int:
        """The index of the epoch, from 0."""
        self.varies = True
        return self._epoch

    def rows_of_partition(self) -> int:
        """Return the rows that one partition gives to one step; 1 if no batch size is known."""
        size = self._batch or self.global_batch_size
        partitions = self._partitions(size or 1) if callable(self._partitions) else self._partitions
        return max(1, size // partitions) if size else 1

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Return the rows of one partition in one step: global_batch_size // partitions.

        Raises:
          ConfigError: the size is not divisible by the partitions, or differs from the size of an
            earlier call. It is a ValueError, as in TensorFlow.
        """
        size = int(global_batch_size)
        partitions = self._partitions(size) if callable(self._partitions) else self._partitions
        if self.global_batch_size not in (None, size):
            raise ConfigError(
                f"dataset_fn requests global batch sizes {self.global_batch_size} and {size}: use"
                " one size for a dataset"
            )
        if size < 1:
            raise ConfigError(f"global batch size {size}: must be 1 or more")
        if size % partitions:
            raise ConfigError(
                f"global batch size {size} is not divisible by the {partitions} partitions of the"
                f" job: change it, or choose spec.partitions among {assignment.divisors(size)}"
            )
        self.global_batch_size = size
        return size // partitions
