"""What a trainer holds of an input: `connect()` and the ways to iterate."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from distributed_input.api.errors import ConfigError, PositionError
from distributed_input.api.proto import trainer_pb2, types_pb2
from distributed_input.assignment.jobs import check_name
from distributed_input.client.reader import InputReader
from distributed_input.rows.decode import decode
from distributed_input.rows.elements import ElementSpec

if TYPE_CHECKING:
    import tensorflow as tf

JOB_ENV = "DISTRIBUTED_INPUT_JOB"
FOLDER_ENV = "DISTRIBUTED_INPUT_DIR"
DEFAULT_FOLDER = "/run/distributed-input"


def connect(name: str = "", *, job: str | None = None, timeout: float = 60.0) -> Input:
    """Connect to the sidecar beside this trainer.

    Args:
        name: of the DistributedInput; may be left out where the sidecar serves one.
        job: which of the input's jobs: each has an epoch and positions of its own, and trainers
            of the same name share one. Without it DISTRIBUTED_INPUT_JOB names it, and where that
            is not set it is the input's own job.
        timeout: seconds to wait for the sidecar.

    Returns:
        The input. Use it as a context manager, or call `close`.

    Raises:
        UnavailableError: no sidecar answered; says how to start one.
        ConfigError: the sidecar serves no input of that name, or `job` cannot be a name.
    """
    folder = Path(os.environ.get(FOLDER_ENV) or DEFAULT_FOLDER)
    wanted = os.environ.get(JOB_ENV, "") if job is None else job
    return Input(InputReader(folder, name, timeout, check_name(wanted)))


class Input:
    """One DistributedInput, as one trainer process reads it.

    Iterating starts the next epoch and drops the rest of a running one; one iterator at a
    time. Every batch is this process's share of a step of the global batch.
    """

    def __init__(self, reader: InputReader) -> None:
        self._reader = reader
        self._opened: tuple[object, int, int | None] | None = None
        self._state: Any = None

    @property
    def name(self) -> str:
        """Of the resource."""
        return self._reader.welcome.input

    @property
    def job(self) -> str:
        """Which of the input's jobs; empty: its own."""
        return self._reader.job

    @property
    def consumer(self) -> tuple[int, int]:
        """(index, count) of this trainer among the trainers that share the job."""
        return self._reader.welcome.consumer, self._reader.welcome.consumers

    @property
    def warnings(self) -> list[str]:
        """What the job's definition was warned about."""
        return list(self._reader.opened.job.warnings)

    # Iterating.

    def numpy(self) -> Iterator[Any]:
        """The next epoch's batches as nested numpy arrays, without TensorFlow.

        Numbers of fixed shape are read-only views of shared memory: copy what you keep for
        long. Ragged and sparse components come as `Ragged` and `Sparse`.

        Raises:
            DistributedInputError: see `distributed_input.api.errors`; retryable ones may be
                iterated again, and go on where the last batch was.
        """
        self._open(None, 1, None)
        self._reader.count_steps(None)
        generation = self._reader.begin()
        return self._numpy_batches(generation)

    def _numpy_batches(self, generation: int) -> Iterator[Any]:
        spec = self._spec
        whole = self._whole
        for batch in self._reader.units(generation):
            values = decode(spec, None if whole else batch.rows, batch.buffers)
            del batch  # neither may hold memory while the next one is awaited
            yield values
            del values

    def dataset(
        self,
        dataset: Callable[[Any], tf.data.Dataset] | tf.data.Dataset | None = None,
        *,
        global_batch_size: int | None = None,
    ) -> tf.data.Dataset:
        """The input as a plain `tf.data.Dataset` of this process's batches.

        Args:
            dataset: where the resource names none: `dataset_fn(input_context)` or a dataset.
            global_batch_size: rows over all trainers in a step; may come from the resource,
                from `get_per_replica_batch_size`, or from a plain dataset's own batch.
        """
        from distributed_input.client.tensorflow import fit, tensors

        self._open(dataset, 1, global_batch_size)
        self._reader.count_steps(None, prefetches=True)
        return fit.read_whole(tensors.as_dataset(self._reader, self._spec, self._whole))

    def distribute(
        self,
        strategy: tf.distribute.Strategy,
        dataset: Callable[[Any], tf.data.Dataset] | tf.data.Dataset | None = None,
        *,
        global_batch_size: int | None = None,
        options: tf.distribute.InputOptions | None = None,
    ) -> Any:
        """The input as a native `tf.distribute.DistributedDataset` of `strategy`.

        Args:
            strategy: whose replicas share every batch.
            dataset: as for `dataset`.
            global_batch_size: as for `dataset`.
            options: as for `strategy.distribute_datasets_from_function`.

        Raises:
            ConfigError: the strategy wants more than one iterator in this process.
        """
        from distributed_input.client.tensorflow import distribute, tensors

        distribute.check(strategy, options)
        replicas = distribute.local_replicas(strategy)
        self._open(dataset, replicas, global_batch_size)
        plain = tensors.as_dataset(self._reader, self._spec, self._whole)
        return distribute.distributed(strategy, plain, self._reader, options)

    @property
    def element_spec(self) -> Any:
        """The (nested) `tf.TypeSpec` of what `dataset` yields; known before the first batch."""
        from distributed_input.client.tensorflow import tensors

        self._open(None, 1, None)
        return tensors.element_spec(self._reader, self._spec, self._whole)

    # Where the loop stands.

    def position(self, batches: int | None = None, *, epoch_over: bool = False) -> bytes:
        """Where the loop stands: a small value that any checkpoint can hold.

        Under `distribute` this is what the loop has consumed, however far the native iterator
        has run ahead; for `numpy`, what was handed out.

        Args:
            batches: for `dataset`, and under the default strategy: how many the loop has consumed
                of the running epoch. TensorFlow fetches more than that, and tells nobody.
            epoch_over: if these are all batches of the epoch, go on with the next one.

        Raises:
            PositionError: nobody knows what the loop has consumed.
        """
        reader = self._reader
        units = reader.requested_units()
        if units is None and batches is None and reader.prefetches and reader.begun:
            raise PositionError(
                "a plain dataset runs ahead of the loop, and nobody counts what the loop has "
                "consumed: read through distribute() under a strategy (OneDeviceStrategy for one "
                "device), or count, and say position(batches=...)"
            )
        saved = reader.position(batches if units is None else units, epoch_over)
        data: bytes = saved.SerializeToString()
        return data

    @property
    def generation(self) -> int:
        """Counts this connection's epochs: one more with every new iterator."""
        return self._reader.generation

    @property
    def state(self) -> Any:
        """The position as a part of a `tf.train.Checkpoint`: `Checkpoint(input=inp.state)`."""
        from distributed_input.client.tensorflow.checkpoint import InputState

        if self._state is None:
            self._state = InputState(self)
        return self._state

    def restore(self, position: bytes) -> None:
        """Let the next iterator go on from a saved position, in this process or another."""
        saved = trainer_pb2.Position.FromString(position)
        self._reader.restore(saved)

    def close(self) -> None:
        """Stop reading. Batches that are still held stay valid."""
        self._reader.close()

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
        """Open the job once; a second call must want the same."""
        wanted = (dataset, replicas, global_batch_size)
        if self._opened is not None:
            again = dataset is None and global_batch_size is None
            if self._opened == wanted or (again and replicas == self._opened[1]):
                return
            if again and self._reader.begun:
                raise ConfigError(
                    f"input {self.name} is being iterated for {self._opened[1]} replicas: "
                    "connect() again to read it another way"
                )
            if again:
                dataset, _, global_batch_size = self._opened
        draft, data = self._draft(dataset, global_batch_size)
        self._reader.open(draft, data, replicas)
        self._opened = (dataset, replicas, global_batch_size)

    def _draft(self, dataset: Any, global_batch_size: int | None) -> tuple[types_pb2.Job, bytes]:
        draft = types_pb2.Job()
        draft.CopyFrom(self._reader.welcome.config)
        if global_batch_size is not None:
            if global_batch_size < 1:
                raise ConfigError(f"global_batch_size={global_batch_size}: must be 1 or more")
            draft.global_batch_size = global_batch_size
        if dataset is None:
            return draft, b""
        if not self._reader.welcome.from_trainer:
            raise ConfigError(
                f"input {self.name} names its dataset ({draft.entry_point.target}) and the trainer "
                "brings another: leave the argument out, or take out spec.dataset.entryPoint"
            )
        if self._reader.welcome.consumer != 0:
            return draft, b""  # consumer 0 registers it; the same code makes the same dataset
        from distributed_input.tfdata import export

        return export.export_job(draft, dataset)

    @property
    def _spec(self) -> ElementSpec:
        return ElementSpec.from_json(self._reader.opened.job.row_spec)

    @property
    def _whole(self) -> bool:
        return not self._reader.opened.unit_rows
