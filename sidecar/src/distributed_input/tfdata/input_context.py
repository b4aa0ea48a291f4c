"""The `tf.distribute.InputContext` that a dataset_fn is called with."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.assignment import splits as assignment


class SplitInputContext(tf.distribute.InputContext):
    """A split as an input pipeline.

    `num_input_pipelines` is the number of splits, and `input_pipeline_id` is the index of this one.
    `num_replicas_in_sync` is always 1: a dataset must not depend on the trainers. `varies`: the
    dataset may differ between epochs, because `seed` or `epoch` was read. `global_batch_size` is
    the argument of `get_per_replica_batch_size`; None before the first call.
    """

    def __init__(
        self,
        num_splits: int,
        split: int,
        partitions: int | Callable[[int], int],
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        """Create the context of one split.

        `partitions` is the job's number of partitions, or returns it for a global batch size.
        """
        super().__init__(num_splits, split, 1)
        self._partitions = partitions
        self._seed = seed
        self._epoch = epoch
        self.varies = False
        self.global_batch_size: int | None = None

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
