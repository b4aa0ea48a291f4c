"""The trainer's API: `connect()`, and an input's batches as arrays, tensors or datasets.

This module is long because each way to read is a documented method of one class.
"""

from __future__ import annotations

import functools
import os
import warnings
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, NoReturn

from distributed_input.api.environment import DIR_ENV, JOB_ENV
from distributed_input.api.errors import ConfigError, DistributedInputError, PositionError, short
from distributed_input.api.proto import types_pb2
from distributed_input.order import mixture
from distributed_input.order.jobs import check_name
from distributed_input.order.share import are_divided
from distributed_input.trainer import launchers, position_log
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.epoch_state import without_traceback
from distributed_input.trainer.frameworks.lazy_epoch import LoopCounter
from distributed_input.trainer.lineage import Lineage

if TYPE_CHECKING:
    import tensorflow as tf
    from jax.sharding import Sharding
    from torch.utils.data import IterableDataset

    from distributed_input.trainer.frameworks import jax
    from distributed_input.trainer.tensorflow.checkpoint import InputState

DEFAULT_FOLDER = "/run/distributed-input"


@short
def connect(
    name: str = "",
    *,
    job: str | None = None,
    rank: int | None = None,
    world_size: int | None = None,
    data_rank: int | None = None,
    data_size: int | None = None,
    timeout: float = 60.0,
    accept_changed_dataset: bool = False,
    lineage: bool = False,
) -> Input:
    """Connect to the sidecar of this trainer.

    Args:
        name: the name of the DistributedInput; optional if the sidecar serves one input.
        job: the name of one of the input's jobs. Each job has its own epochs and positions, and
            trainers that use the same name share them. Default: the value of the environment
            variable DISTRIBUTED_INPUT_JOB, or else the input's own job.
        rank: the index of this process among all that read the input, from 0. If the trainer has
            several ranks, the default is the rank that torchrun, mpirun, srun, TF_CONFIG or
            jax.distributed has set.
        world_size: the number of these processes. Pass it together with `rank`.
        data_rank: the index of this process's group, from 0, if several processes read the same
            batches: a tensor-, context- or pipeline-parallel group. Its rows are fetched once.
        data_size: the number of groups, which divides the number of all processes. All processes
            of a group are in one trainer. Pass it together with `data_rank`.
        timeout: seconds to wait for the sidecar, or a quarter of them if its folder is missing.
        accept_changed_dataset: restore positions that were saved with another dataset, or before
            its files or code changed. Rows may then be repeated or skipped. Default: such a
            position is an error.
        lineage: whether batches come with the numbers of their rows, for `Input.lineage`.

    Returns:
        The input. Use it as a context manager, or call `close`.

    Raises:
        UnavailableError: no sidecar answered; the message explains how to start one.
        ConfigError: the sidecar serves no input of that name, `job` is not a valid name, or this
            process is not one of the ranks of its trainer.
    """
    folder = Path(os.environ.get(DIR_ENV) or DEFAULT_FOLDER)
    job_name = os.environ.get(JOB_ENV, "") if job is None else job
    consumer = Consumer(
        folder,
        name,
        timeout,
        check_name(job_name),
        accept_changed_dataset,
        launchers.requested_data_rank(
            data_rank, data_size, launchers.requested_rank(rank, world_size)
        ),
        lineage,
    )
    return Input(consumer)


class Input:
    """One DistributedInput, as one trainer process reads it.

    A new iterator starts the next epoch and drops the rest of a running one, so use one iterator
    at a time. Every batch is this process's part of a global batch.
    """

    def __init__(self, consumer: Consumer) -> None:
        self._consumer = consumer
        self._opened: tuple[object, int, int | None] | None = None
        self._state: InputState | None = None

    @property
    def name(self) -> str:
        """The name of the DistributedInput resource."""
        return self._consumer.welcome.input

    @property
    def job(self) -> str:
        """The name of the job; empty: the input's own job."""
        return self._consumer.job

    @property
    def consumer(self) -> tuple[int, int]:
        """The pair (index, count) of this process among all that share the job."""
        return self._consumer.welcome.consumer, self._consumer.welcome.consumers

    @property
    def warnings(self) -> list[str]:
        """The warnings about the job's definition."""
        return list(self._consumer.opened.job.warnings)

    # Iterating.

    @short
    def numpy(self) -> Iterator[Any]:
        """Iterate over the next epoch's batches as nested numpy arrays, without TensorFlow.

        Numbers of fixed shape are read-only views of shared memory: copy the arrays that you keep
        for long. Ragged and sparse components are `Ragged` and `Sparse` values.

        Raises:
            DistributedInputError: see `distributed_input.api.errors`. After a retryable error, a
                new iterator continues behind the last batch.
        """
        self._open(None, 1, None)
        return self._epoch(self._consumer.arrays)

    @short
    def torch(self) -> IterableDataset[Any]:
        """Return the input as a PyTorch dataset of this process's batches, without TensorFlow.

        Each iterator reads the next epoch, as `numpy` does: the same batches, order and positions.
        The epoch begins when the iterator gets its first batch.
        Numbers of fixed shape are tensors of shared memory, on the CPU: copy those that you keep
        for long, or move them to the device. With `data_rank`, they are copies. Strings stay numpy
        arrays of bytes objects. Ragged and sparse components are `Ragged` and `Sparse` values that
        contain tensors.

        `state_dict` and `load_state_dict` hold the position behind the last batch that was
        returned; in Lightning, which fetches one more, behind the last one that it has used. The
        batches are this process's share, so pass the dataset itself to Accelerate and Lightning. A
        `DataLoader` around it needs `batch_size=None` and `num_workers=0`.

        Raises:
            ConfigError: PyTorch is not installed, or it has no type for a component.
            DistributedInputError: see `numpy`.
        """
        from distributed_input.trainer.frameworks import pytorch

        torch = pytorch.import_torch()
        self._open(None, 1, None)
        read = pytorch.reader(torch, self._consumer)
        return pytorch.dataset(torch, self, functools.partial(self._epoch, read))

    @short
    def jax(self, sharding: Sharding | Any = None, *, prefetch: int = 2) -> jax.JaxBatches:
        """Return an iterator of this input's batches as global JAX arrays, without TensorFlow.

        Each loop over it reads to the end of an epoch. It has `get_state` and `set_state`, as the
        iterators of Grain: the position behind the last batch that was returned.

        Strings, ragged and sparse components stay as `numpy` gives them. On CPUs, an array may view
        shared memory: do not keep many batches.

        Args:
            sharding: the sharding of the global batch, of which the devices of each process hold
                what this process reads; or a structure of shardings, as prefix of the batch's.
                Default: the default device.
            prefetch: batches that are on devices before the loop requests them, if they arrived.

        Raises:
            ConfigError: JAX is not installed, or the sharding does not fit to what the trainers
                read, also with the first batch.
            DistributedInputError: see `numpy`.
        """
        from distributed_input.trainer.frameworks import jax as frameworks_jax

        self._open(None, 1, None)
        placement = frameworks_jax.Placement(frameworks_jax.import_jax(), self._consumer, sharding)
        read = functools.partial(self._consumer.decoded, placement.place)
        begin = functools.partial(self._epoch, read)
        return frameworks_jax.JaxBatches(self, begin, self._consumer.has_arrived, prefetch)

    @short
    def keras(self) -> Any:
        """Return the input as the data of `keras.Model.fit`, `evaluate` and `predict`.

        It works on each backend of Keras 3, and needs TensorFlow only for that backend, for which
        it is `dataset()`. The components are dense numbers. Save positions with
        `distributed_input.keras.BackupAndRestore`.

        Raises:
            ConfigError: a component is no dense number.
            DistributedInputError: see `numpy`.
        """
        import keras

        if keras.backend.backend() == "tensorflow":
            return self.dataset()
        from distributed_input.trainer.frameworks.keras import KerasInput

        self._open(None, 1, None)
        return KerasInput(self._consumer, functools.partial(self._epoch, prefetches=True))

    def _epoch(
        self,
        read: Callable[[int], Iterator[Any]],
        counter: LoopCounter | None = None,
        *,
        prefetches: bool = False,
    ) -> Iterator[Any]:
        """Begin the next epoch. Return what `read` returns for its generation.

        Args:
            read: reads the epoch of a generation.
            counter: counts the batches that the loop has requested; None: as many as were read.
            prefetches: the loop may fetch batches before it uses them, and nothing counts these.
        """
        self._consumer.count_steps(counter, prefetches=prefetches)
        return _Batches(read(self._consumer.begin()))

    @short
    def dataset(
        self,
        dataset: Callable[[Any], tf.data.Dataset] | tf.data.Dataset | None = None,
        *,
        global_batch_size: int | None = None,
    ) -> tf.data.Dataset:
        """Return the input as a plain `tf.data.Dataset` of this process's batches.

        Args:
            dataset: a `dataset_fn(input_context)` or a dataset, if the resource names none.
            global_batch_size: rows of all trainers in a step. Default: the resource's value, the
                argument of `get_per_replica_batch_size`, or the batch size of a plain dataset.
        """
        from distributed_input.trainer.tensorflow import dataset as units
        from distributed_input.trainer.tensorflow import keras_fit

        self._open(dataset, 1, global_batch_size)
        self._consumer.count_steps(None, prefetches=True)
        plain = units.as_dataset(self._consumer)
        return keras_fit.WholeEpochDataset(plain)

    @short
    def distribute(
        self,
        strategy: tf.distribute.Strategy,
        dataset: Callable[[Any], tf.data.Dataset] | tf.data.Dataset | None = None,
        *,
        global_batch_size: int | None = None,
        options: tf.distribute.InputOptions | None = None,
    ) -> tf.distribute.DistributedDataset:
        """Return the input as a native `tf.distribute.DistributedDataset` of `strategy`.

        Args:
            strategy: the strategy; its replicas share every batch.
            dataset: see `dataset`.
            global_batch_size: see `dataset`.
            options: see `strategy.distribute_datasets_from_function`.

        Raises:
            ConfigError: the strategy needs more than one iterator in this process.
        """
        from distributed_input.trainer.tensorflow import dataset as units
        from distributed_input.trainer.tensorflow import distribute
        from distributed_input.trainer.tensorflow.element_parts import divide

        distribute.check(strategy, options)
        replicas = distribute.local_replicas(strategy)
        self._open(dataset, replicas, global_batch_size)
        plain = units.as_dataset(self._consumer)
        if replicas > 1 and are_divided(self._consumer.opened.job):
            plain = divide(plain, replicas)
        return distribute.distributed(strategy, plain, self._consumer, options)

    @property
    def element_spec(self) -> Any:
        """The nested `tf.TypeSpec` of the elements of `dataset`, known before the first batch."""
        from distributed_input.trainer.tensorflow import dataset as units
        from distributed_input.trainer.tensorflow import decode as tf_decode

        self._open(None, 1, None)
        return tf_decode.element_spec(self._consumer.spec, units.leading(self._consumer))

    # Positions.

    @short
    def position(self, batches: int | None = None, *, epoch_over: bool = False) -> bytes:
        """Return the position of the loop: a small value that any checkpoint can hold.

        With `distribute`, it is behind the last batch that the loop has consumed, however many
        batches the native iterator has prefetched. With `numpy` and `torch`, it is behind the last
        batch that was returned.

        Args:
            batches: the number of batches of the running epoch that the loop has consumed. It is
                required with `dataset` and with the default strategy, because TensorFlow prefetches
                batches and does not report which ones the loop has consumed.
            epoch_over: if these are all batches of the epoch, continue with the next epoch. Pass it
                with `dataset` when the loop over the epoch has ended. Without it, the position is
                behind the last batch, and the next iterator ends at once, as a restored one of
                TensorFlow does. With `numpy`, `torch` and `distribute`, the end is known.

        Raises:
            PositionError: the number of consumed batches is unknown, or more than were read.
        """
        consumer = self._consumer
        if batches is not None and not 0 <= batches <= consumer.received_units:
            raise PositionError(
                f"position(batches={batches}): {consumer.received_units} batches of this epoch "
                "were read since the iterator began: count those that the loop has used"
            )
        units = consumer.requested_units()
        if batches is not None and isinstance(consumer.counter, LoopCounter):
            units = None  # the loop fetches batches that its iterator does not know of
        if units is None and batches is None and consumer.prefetches and consumer.generation:
            raise PositionError(
                "a plain dataset prefetches, so the number of batches that the loop has consumed "
                "is unknown: read with distribute() and a strategy (OneDeviceStrategy for one "
                "device), or count the batches and call position(batches=...)"
            )
        if units is not None:
            saved = consumer.position(units, epoch_over)
        else:  # without prefetching, only a loop that has used all batches reads the end
            saved = consumer.position(batches, epoch_over or not consumer.prefetches)
        data: bytes = saved.SerializeToString()
        return data

    @short
    def lineage(self) -> Lineage:
        """Return which rows the last batch has: arrays of source, epoch, split and row.

        It is the last batch that the loop has consumed, as for `position`; with `distribute`, the
        rows of this process's replicas, one after the other. Requires `connect(..., lineage=True)`.

        Raises:
            ConfigError: the input was connected without `lineage=True`.
            PositionError: the loop has no batch yet, or it is unknown which one: a plain dataset
                prefetches.
        """
        consumer = self._consumer
        units = consumer.requested_units()
        if units is None and consumer.prefetches and consumer.generation:
            raise PositionError(
                "a plain dataset prefetches, also beyond the end of an epoch, so it is unknown "
                "which batch the loop has: read with numpy(), or with distribute() and a strategy "
                "(OneDeviceStrategy for one device)"
            )
        return consumer.lineage(units)

    @property
    def generation(self) -> int:
        """The number of epochs begun on this connection; every new iterator adds one or more."""
        return self._consumer.generation

    @property
    def state(self) -> InputState:
        """The position as a part of a checkpoint: `tf.train.Checkpoint(input=train.state)`."""
        from distributed_input.trainer.tensorflow.checkpoint import InputState

        if self._state is None:
            self._state = InputState(self)
        return self._state

    def restore(self, position: bytes) -> None:
        """Continue at a position that this or another process saved.

        A running iterator of `distribute` moves to the position, as those of TensorFlow do, if the
        same thread restores and iterates. All other running iterators raise PositionError.
        """
        self._consumer.restore(position_log.parse(position))

    def set_weights(self, weights: Mapping[str, float]) -> None:
        """Change the weights of the sources of a mixture from the next step of the loop on.

        Call it in all trainers after the same step, with the same weights. They stay in force until
        the end of the epoch, and are a part of each position. They replace the rest of
        `spec.mixture.schedule`. What was read ahead is read again: that takes as long as a restore.

        As `restore` does, this moves a running iterator of `distribute`. All other running
        iterators raise PositionError: iterate again, which continues at the next step.

        Args:
            weights: the weight of each source, by name. 0: no rows.

        Raises:
            ConfigError: the input is no mixture, it has other sources, or several ranks read the
                same batches.
            PositionError: the number of consumed batches is unknown, or the epoch is over.

        If two trainers set different weights at one step, their iterators raise ReplayError after
        about 32 steps more.
        """
        if self._consumer.welcome.readers > 1:
            raise ConfigError(
                "set_weights: not possible for ranks that read the same batches (data_size): they "
                "could not all change at once. Use spec.mixture.schedule"
            )
        position = position_log.parse(self.position())
        job = self._consumer.opened.job
        if not position.num_splits or not job.num_splits:  # it may only have been restored
            raise PositionError(
                "set_weights: the input was not read yet. Set the first weights in "
                "spec.mixture.weights, and call this after the first step"
            )
        if position.end:
            raise PositionError(
                "set_weights: the epoch is over, and the next one begins with the weights of "
                "spec.mixture. Call it after the first step of an epoch"
            )
        mixture.set_weights(position, job, weights)
        self._consumer.restore(position)

    @short
    def skip(self, steps: int) -> None:
        """Leave out the next `steps` steps of the epoch: the loop continues behind them.

        Call it in all trainers after the same step, with the same number. The steps count as read
        in each position, also after a restore. If the epoch has fewer, it ends. Workers compute
        their rows as for a restore, and do not send them.

        As `restore` does, this moves a running iterator of `distribute`. All other running
        iterators raise PositionError: iterate again, which continues behind the steps.

        Args:
            steps: number of steps, which are batches of the global batch size. 0 or more.

        Raises:
            ConfigError: the number is not valid, the input has no batch size, it is a mixture whose
                epoch ends, or several ranks read the same batches.
            PositionError: the number of consumed batches is unknown, the input was neither read nor
                restored, or the epoch is over.
        """
        if self._consumer.welcome.readers > 1:
            raise ConfigError(
                "skip: not possible for ranks that read the same batches (data_size): they could "
                "not all skip at once"
            )
        position = position_log.parse(self.position())
        position_log.skip(position, steps)
        self._consumer.restore(position)

    @short
    def skip_ended_epoch(self) -> bool:
        """Skip the rest of the epoch of a restored position if it has no batches.

        A position behind the last batch of an epoch, which was saved before the loop got the end,
        restores an epoch without batches. Call this after `restore`, before iterating, if the loop
        cannot take it. It waits for a batch, and opens the epoch once more.

        Returns:
            Whether the rest had no batches, so that the next iterator begins another epoch.

        Raises:
            DistributedInputError: see `numpy`.
        """
        consumer = self._consumer
        position = consumer.position()
        if next(consumer.units(consumer.begin()), None) is None:
            return True
        consumer.restore(position)
        return False

    def close(self) -> None:
        """Stop reading. Batches in use stay valid."""
        self._consumer.close()

    def __reduce__(self) -> NoReturn:
        raise ConfigError(
            f"input {self.name} cannot be sent to another process: iterate in this one (with "
            "PyTorch: DataLoader(..., num_workers=0)), or call connect() in the process that "
            "iterates"
        )

    def __enter__(self) -> Input:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # Opening the job.

    def _open(self, dataset: Any, replicas: int, global_batch_size: int | None) -> None:
        """Open the job once; a later call must not change it while it is being read."""
        requested = (dataset, replicas, global_batch_size)
        if self._opened is not None:
            reuse = dataset is None and global_batch_size is None
            if self._opened == requested or (reuse and replicas == self._opened[1]):
                return
            if reuse and self._consumer.generation:
                raise ConfigError(
                    f"input {self.name} is being iterated for {self._opened[1]} replicas: "
                    "connect() again to read it another way"
                )
            if reuse:
                dataset, _, global_batch_size = self._opened
        draft, data = self._draft(dataset, global_batch_size)
        self._consumer.open(draft, data, replicas)
        self._opened = (dataset, replicas, global_batch_size)
        job, welcome = self._consumer.opened.job, self._consumer.welcome
        if welcome.readers > 1 and job.exhaustion == types_pb2.DROP_SOURCE:
            raise ConfigError(
                "spec.mixture.onExhausted: Drop is not possible for ranks that read the same "
                "batches (data_size). Use Repeat or Stop"
            )
        consumers = self._consumer.welcome.consumers
        if consumers > 1 and are_divided(self._consumer.opened.job):
            warnings.warn(
                f"no batch size is known, so each element of the dataset is a step of one of the "
                f"{consumers} trainers. TensorFlow divides each element among them: set "
                "global_batch_size, or end the dataset with batch",
                stacklevel=4,
            )

    def _draft(self, dataset: Any, global_batch_size: int | None) -> tuple[types_pb2.Job, bytes]:
        draft = types_pb2.Job()
        draft.CopyFrom(self._consumer.welcome.config)
        if global_batch_size is not None:
            if global_batch_size < 1:
                raise ConfigError(f"global_batch_size={global_batch_size}: must be 1 or more")
            draft.global_batch_size = global_batch_size
        if dataset is None:
            return draft, b""
        if not self._consumer.welcome.from_trainer:
            raise ConfigError(
                f"input {self.name} names its dataset ({draft.entry_point.target}) and the trainer "
                "passes another: omit the argument, or set spec.dataset to {type: Trainer}"
            )
        if self._consumer.welcome.consumer:  # consumer 0 registers the dataset of all consumers
            return draft, b""
        from distributed_input.graph import export

        return export.export_job(draft, dataset)


class _Batches:
    """An iterator that raises its error again, where a generator would report the end."""

    def __init__(self, batches: Iterator[Any]) -> None:
        self._batches = batches
        self._error: DistributedInputError | None = None

    def __iter__(self) -> Iterator[Any]:
        return self

    @short
    def __next__(self) -> Any:
        if self._error is not None:
            raise without_traceback(self._error)
        try:
            return next(self._batches)
        except DistributedInputError as error:
            self._error = without_traceback(error)
            raise
