"""Data that changes is an error with a remedy, and the next run reads the new data."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tensorflow as tf

from distributed_input.api.errors import JobConflictError, PositionError, ReplayError, ReplayWarning
from distributed_input.api.proto import trainer_pb2
from distributed_input.trainer.consumer import Consumer
from distributed_input.trainer.input import Input
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec
from testing.integration.datasets import rows

ROWS = 96


@pytest.fixture
def own() -> Iterator[Cluster]:
    with Cluster() as cluster:
        yield cluster


def numbered(name: str, cluster: Cluster, **fields: int) -> Sidecar:
    fields = {"partitions": 4, "globalBatchSize": 8, **fields}
    (sidecar,) = cluster.add_sidecars({name: spec("rows:numbered", {"rows": ROWS}, **fields)})
    return sidecar


def read_some(sidecar: Sidecar, steps: int = 2) -> tuple[list[int], bytes]:
    """Return the rows of some steps, and the position behind them."""
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        got = readers.ids(next(batches) for _ in range(steps))
        return got, data.position()


def test_a_position_of_another_number_of_splits_is_an_error(cluster: Cluster) -> None:
    first = numbered("splits", cluster, numSplits=32)
    got, position = read_some(first)
    cluster.remove([first])
    second = numbered("splits", cluster, numSplits=8)
    with readers.connect(second) as data:
        data.restore(position)
        for _ in range(2):  # the error stays
            with pytest.raises(PositionError, match=r"spec.numSplits = 32, the job now has 8"):
                next(data.numpy())
    cluster.remove([second])
    with readers.connect(numbered("splits", cluster, numSplits=32)) as data:
        data.restore(position)
        assert sorted(got + readers.ids(data.numpy())) == list(range(ROWS))


def test_a_file_that_is_added_during_a_run_is_an_error_and_the_next_run_reads_it(
    own: Cluster, tmp_path: Path
) -> None:
    """Another worker starts during the run. It would cut the files in another way."""
    rows.write_files(tmp_path, [6] * 17)
    added = tmp_path / "part-016.tfrecord"
    added.rename(tmp_path / "later")
    (first,) = own.add_workers(1)
    # The rows are large, so that most files are opened after the change.
    arguments = {"pattern": f"{tmp_path}/part-*.tfrecord", "padding": 1 << 19}
    fields = {"partitions": 4, "numSplits": 16, "globalBatchSize": 8}
    (sidecar,) = own.add_sidecars({"listed": spec("rows:listed", arguments, **fields)})
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        next(batches)
        position = data.position()
        (tmp_path / "later").rename(added)
        own.add_workers(1)
        own.remove([first])
        with pytest.raises(JobConflictError, match=r"split \d+ of rows:listed has changed"):
            readers.ids(batches)
    with readers.connect(sidecar) as data:
        assert sorted(readers.ids(data.numpy())) == list(range(6 * 17))
        data.restore(position)
        with pytest.raises(PositionError, match="the dataset has changed since the checkpoint"):
            data.numpy()
    reader = Consumer(sidecar.shared, "", 20.0, accept_changed_dataset=True)
    with Input(reader) as data:
        data.restore(position)
        with pytest.warns(ReplayWarning, match="rows differ"):
            assert len(readers.ids(data.numpy())) == 6 * 17 - 8


def test_contradicting_rows_end_the_run_of_every_trainer_and_the_next_run_begins_anew(
    own: Cluster, tmp_path: Path
) -> None:
    """A file gets more rows after its end was reported, and the epoch is read once more."""
    rows.write_files(tmp_path, [6] * 8)
    workers = own.add_workers(1)
    arguments = {"pattern": f"{tmp_path}/part-*.tfrecord"}
    fields = {"partitions": 2, "numSplits": 8, "globalBatchSize": 4}
    sidecars = own.add_sidecars({"longer": spec("rows:listed", arguments, **fields)}, 2)

    def change() -> None:
        rows.write_files(tmp_path, [6] * 7 + [9])
        own.remove(workers)  # it has the rows in memory
        own.add_workers(1)

    changed = threading.Barrier(2, change)

    def read_twice(sidecar: Sidecar) -> str:
        with readers.connect(sidecar) as data:
            batches = data.numpy()
            next(batches)
            position = data.position()
            readers.ids(batches)
            changed.wait(readers.SECONDS)
            data.restore(position)
            epochs = (readers.ids(data.numpy()) for _ in range(10_000))  # until the next heartbeat
            with pytest.raises(ReplayError, match="All trainers must stop") as error:
                list(epochs)
            with pytest.raises(ReplayError, match="All trainers must stop"):
                readers.ids(data.numpy())
        return str(error.value)

    errors = readers.run_concurrently([lambda one=one: read_twice(one) for one in sidecars])
    assert "another number of rows" in errors[0] or "another length" in errors[0]
    (epoch,) = zip(*readers.read(sidecars), strict=True)
    assert sorted(readers.ids(epoch[0]) + readers.ids(epoch[1])) == list(range(51))


@pytest.mark.parametrize("worker", ["stays", "restarts"])
def test_a_run_reads_files_that_were_replaced_after_the_run_before(
    own: Cluster, tmp_path: Path, worker: str
) -> None:
    """Neither the blocks of a worker nor the facts of a sidecar reach the next run."""
    rows.write_files(tmp_path, [6] * 8)
    workers = own.add_workers(1)
    arguments = {"pattern": f"{tmp_path}/part-*.tfrecord"}
    fields = {"partitions": 2, "numSplits": 8, "globalBatchSize": 4}
    (sidecar,) = own.add_sidecars({"replaced": spec("rows:listed", arguments, **fields)})
    with readers.connect(sidecar) as data:
        assert sorted(readers.ids(data.numpy())) == list(range(48))
    rows.write_files(tmp_path, [9] * 8)
    if worker == "restarts":
        own.remove(workers)
        own.add_workers(1)
    with readers.connect(sidecar) as data:
        assert sorted(readers.ids(data.numpy())) == list(range(72))


def test_one_connection_reads_one_dataset_after_another(own: Cluster) -> None:
    """The second one begins with its first epoch, and the first one's iterator has ended."""
    own.add_workers(1)
    fields: dict[str, Any] = {"partitions": 2, "numSplits": 4, "globalBatchSize": 4, "epochs": 1}
    (sidecar,) = own.add_sidecars({"several": spec(**fields)})
    with readers.connect(sidecar) as data:
        for first in (0, 100):

            def dataset_fn(ctx: Any, first: int = first) -> tf.data.Dataset:
                own = (first + ctx.input_pipeline_id, first + 24, ctx.num_input_pipelines)
                numbers = tf.data.Dataset.range(*own).map(lambda row: {"id": row})
                return numbers.batch(ctx.get_per_replica_batch_size(4))

            rows_read = [int(one) for batch in data.dataset(dataset_fn) for one in batch["id"]]
            assert sorted(rows_read) == list(range(first, first + 24))
            position = trainer_pb2.Position.FromString(data.position(6, epoch_over=True))
            assert (position.epoch, position.end) == (0, True)
