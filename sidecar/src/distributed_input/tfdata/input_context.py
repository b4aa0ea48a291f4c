"""The input context that a dataset_fn is called with."""

from __future__ import annotations

from collections.abc import Callable

import tensorflow as tf

from distributed_input.api.errors import ConfigError
from distributed_input.assignment import splits as assignment


class SplitInputContext(tf.distribute.InputContext):
    """A split as an input pipeline: `num_input_pipelines` splits, `input_pipeline_id` this one.

    `num_replicas_in_sync` is always 1: a dataset must not depend on who trains.

    Attributes:
      varies: what is made under it may differ from epoch to epoch: its seed or epoch was asked for.
      global_batch_size: what `get_per_replica_batch_size` has been asked for; None: nothing.
    """

    def __init__(
        self,
        num_splits: int,
        split: int,
        partitions: int | Callable[[int], int],
        seed: int = 0,
        epoch: int = 0,
    ) -> None:
        """A context for one split.

        Args:
          num_splits: how many there are.
          split: its number.
          partitions: of the job, or a function that chooses their number by the global batch size.
          seed: of the job.
          epoch: from 0.
        """
        super().__init__(num_splits, split, 1)
        self._partitions = partitions
        self._seed = seed
        self._epoch = epoch
        self.varies = False
        self.global_batch_size: int | None = None

    @property
    def seed(self) -> int:
        """Of the job and the epoch, for randomness of one's own."""
        self.varies = True
        return self._seed

    @property
    def epoch(self) -> int:
        """From 0."""
        self.varies = True
        return self._epoch

    def get_per_replica_batch_size(self, global_batch_size: int) -> int:
        """Rows that a partition gives to one step: global_batch_size // partitions.

        Raises:
          ConfigError: the partitions do not divide it, or it differs from an earlier call's. (A
            ValueError, as TensorFlow's.)
        """
        size = int(global_batch_size)
        partitions = self._partitions(size) if callable(self._partitions) else self._partitions
        if self.global_batch_size not in (None, size):
            raise ConfigError(
                f"dataset_fn asks for global batch sizes {self.global_batch_size} and {size}: a"
                " dataset has one"
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
