"""TensorFlow's tf.data service, at the endpoint that an input's pods serve.

This module is long because it checks the rows of one page of TensorFlow's reference in their order.
"""

from __future__ import annotations

import ast
import os
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf

from testing.compat import tf_data_service_programs as programs
from testing.compat.behaviour import Reference, behaviour
from testing.compat.row_count_metric import RowCount
from testing.compat.tf_data_service_programs import POLICIES, distributed, numbers, read, service
from testing.compat.tf_data_service_servers import WORKERS, TfDataServiceServers
from testing.integration import readers
from testing.integration.devices import CPUS

ROWS = 40
ENDPOINT = "spec: {encryption: None, tfDataService: {}}"
PLAIN = f"`{ENDPOINT}`; `$DISTRIBUTED_INPUT_TF_DATA_SERVICE` is its address"


@pytest.fixture(scope="module")
def servers() -> Iterator[TfDataServiceServers]:
    with TfDataServiceServers() as started:
        yield started


@pytest.fixture(scope="module")
def address(servers: TfDataServiceServers) -> str:
    return servers.address


@behaviour(
    Reference.SERVICE,
    shows="an unmodified program that imports only TensorFlow",
    call=PLAIN,
)
def test_the_programs_import_only_tensorflow() -> None:
    tree = ast.parse(Path(programs.__file__).read_text())
    imported = {
        name
        for node in ast.walk(tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for name in (
            [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module]
        )
    }
    assert imported == {"__future__", "collections.abc", "typing", "tensorflow"}


@behaviour(
    Reference.SERVICE,
    shows='`processing_mode="parallel_epochs"`: every worker produces the whole dataset',
    call=PLAIN,
)
def test_parallel_epochs_produce_every_element_once_per_worker(address: str) -> None:
    found = Counter(read(distributed(numbers(ROWS), address, "parallel_epochs")))
    assert found == dict.fromkeys(range(ROWS), WORKERS)


@behaviour(
    Reference.SERVICE,
    shows='`processing_mode="distributed_epoch"`: every element once',
    call=PLAIN,
    note="Once if no worker dies",
)
def test_a_distributed_epoch_produces_every_element_once(address: str) -> None:
    assert sorted(read(distributed(numbers(ROWS), address, "distributed_epoch"))) == list(
        range(ROWS)
    )


@behaviour(
    Reference.SERVICE,
    shows="`distributed_epoch` refuses a source that cannot be split, `parallel_epochs` accepts it",
    call=PLAIN,
)
def test_a_source_that_cannot_be_split_needs_parallel_epochs(address: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("".join(f"{row}\n" for row in range(ROWS)))
    dataset = programs.one_file(str(tmp_path / "rows.txt"))
    with pytest.raises(tf.errors.UnimplementedError, match="split provider"):
        read(distributed(dataset, address, "distributed_epoch"))
    found = Counter(read(distributed(dataset, address, "parallel_epochs")))
    assert found == dict.fromkeys(range(ROWS), WORKERS)


@behaviour(
    Reference.SERVICE,
    shows="transformations before `distribute` run in the workers, later ones in the program:"
    " `[1, 1, 2, 2, 5, 5, 10, 10, 17, 17]`",
    call=PLAIN,
)
def test_transformations_before_distribute_run_in_the_workers(
    servers: TfDataServiceServers,
) -> None:
    found = programs.before_and_after(servers.address)
    assert found == [1, 1, 2, 2, 5, 5, 10, 10, 17, 17]
    workers = {str(part.pid) for part in servers.workers}
    for before, after in programs.threads_before_and_after(servers.address):
        assert len(ids_in(before) & workers) == 1
        assert str(os.getpid()) in ids_in(after)


def ids_in(threads: Iterable[bytes]) -> set[str]:
    """Return the ids of `programs.threads`. The id of the first thread is that of the process."""
    return {path.decode().rpartition("/")[2] for path in threads}


@behaviour(
    Reference.SERVICE,
    shows="Keras: `model.fit` of a distributed dataset",
    call=PLAIN,
)
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # unknown cardinality
def test_fit_reads_a_distributed_dataset(address: str) -> None:
    model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=[RowCount()])
    rows = numbers(ROWS).map(lambda row: (tf.cast([row], tf.float32), [0.0])).batch(8)
    history = model.fit(distributed(rows, address, "distributed_epoch"), epochs=2, verbose=0)
    assert history.history["rows"] == [ROWS] * 2


@behaviour(
    Reference.SERVICE,
    shows="`experimental_distribute_dataset` of a dataset distributed with a `job_name`",
    call=PLAIN,
)
def test_a_strategy_distributes_a_distributed_dataset(address: str) -> None:
    strategy = tf.distribute.MirroredStrategy(CPUS)
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", job_name="mirrored")
    steps = [
        [one.numpy().tolist() for one in strategy.experimental_local_results(batch)]
        for batch in strategy.experimental_distribute_dataset(dataset.batch(8))
    ]
    assert [[len(one) for one in step] for step in steps] == [[4, 4]] * 5
    assert sorted(row for step in steps for one in step for row in one) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`ShardingPolicy.OFF` and `DYNAMIC`",
    call=PLAIN,
)
@pytest.mark.parametrize("policy", ["OFF", "DYNAMIC"])
def test_policies_without_static_sharding(address: str, policy: str) -> None:
    found = Counter(read(distributed(numbers(ROWS), address, POLICIES[policy])))
    assert found == dict.fromkeys(range(ROWS), WORKERS if policy == "OFF" else 1)


@behaviour(
    Reference.SERVICE,
    shows="`ShardingPolicy.FILE`, `DATA`, `FILE_OR_DATA` and `HINT`: a shard for each worker",
    call="`spec: {encryption: None, tfDataService: {staticSharding: true}}`",
)
@pytest.mark.parametrize("policy", ["FILE", "DATA", "FILE_OR_DATA", "HINT"])
def test_policies_with_static_sharding(
    servers: TfDataServiceServers, policy: str, tmp_path: Path
) -> None:
    for file in range(4):
        rows = range(file * 10, file * 10 + 10)
        (tmp_path / f"{file}.txt").write_text("".join(f"{row}\n" for row in rows))
    dataset = {
        "FILE": lambda: programs.lines(f"{tmp_path}/*.txt"),
        "DATA": lambda: numbers(ROWS),
        "FILE_OR_DATA": lambda: numbers(ROWS),
        "HINT": lambda: programs.hinted(ROWS),
    }[policy]()
    dataset = distributed(programs.with_threads(dataset), servers.address, POLICIES[policy])
    shards: dict[str, list[int]] = {str(part.pid): [] for part in servers.workers}
    for row, threads in dataset.as_numpy_iterator():
        (producer,) = shards.keys() & ids_in(threads)
        shards[producer].append(int(row))
    one, other = (sorted(shard) for shard in shards.values())
    # FILE: every second file of ten rows. Otherwise: every second row.
    size = 10 if policy == "FILE" else 1
    assert sorted(one + other) == list(range(ROWS))
    for shard in (one, other):
        assert len({row // size % WORKERS for row in shard}) == 1


@behaviour(
    Reference.SERVICE,
    shows="`register_dataset` in one program, `from_dataset_id` in another",
    call=PLAIN,
)
def test_a_registered_dataset_is_read_by_its_id(address: str) -> None:
    found = read(programs.registered(numbers(ROWS), address, "distributed_epoch"))
    assert sorted(found) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`job_name`: consumers with the same name share one pass",
    call=PLAIN,
)
def test_consumers_with_the_same_job_name_share_its_elements(address: str) -> None:
    pair = [
        iter(distributed(numbers(400), address, "distributed_epoch", job_name="shared"))
        for _ in range(2)
    ]
    first = [int(next(pair[0])), int(next(pair[1]))]
    rest = readers.run_concurrently([lambda one=one: [int(v) for v in one] for one in pair])
    assert sorted([*first, *rest[0], *rest[1]]) == list(range(400))


@behaviour(
    Reference.SERVICE,
    shows="`job_name`: a finished job produces nothing more, but the same dataset can repeat",
    call=PLAIN,
)
def test_a_finished_job_produces_nothing_more(address: str) -> None:
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", job_name="again")
    assert sorted(read(dataset)) == list(range(ROWS))
    late = distributed(numbers(ROWS), address, "distributed_epoch", job_name="again")
    assert read(late) == []
    repeated = distributed(numbers(ROWS), address, "distributed_epoch", job_name="repeated")
    assert Counter(read(repeated.repeat(2))) == dict.fromkeys(range(ROWS), 2)


@behaviour(
    Reference.SERVICE,
    shows="`job_name`: two consumers that iterate three times share three passes",
    call=PLAIN,
)
def test_consumers_with_the_same_job_name_share_every_pass(address: str) -> None:
    def passes() -> list[list[int]]:
        dataset = distributed(numbers(ROWS), address, "distributed_epoch", job_name="three")
        return [read(dataset) for _ in range(3)]

    for one, other in zip(*readers.run_concurrently([passes, passes]), strict=True):
        assert sorted(one + other) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`max_outstanding_requests` limits a consumer's requests",
    call=PLAIN,
)
def test_outstanding_requests_are_limited(address: str, tmp_path: Path) -> None:
    leads = {}
    for limit in (1, 64):
        folder = tmp_path / str(limit)
        folder.mkdir()
        dataset = distributed(
            programs.with_marker_files(100, str(folder)),
            address,
            "distributed_epoch",
            max_outstanding_requests=limit,
        )
        rows, ahead = [], []
        for row in dataset.as_numpy_iterator():
            rows.append(int(row))
            ahead.append(len(list(folder.iterdir())) - len(rows))
            time.sleep(0.01)  # the workers are faster than this trainer
        assert sorted(rows) == list(range(100))
        leads[limit] = max(ahead)
    # Each worker also computes a few elements ahead of the requests.
    assert leads[1] < 20 < leads[64]


@behaviour(
    Reference.SERVICE,
    shows="coordinated reads with `consumer_index` and `num_consumers`: one bucket per round",
    call=PLAIN,
)
def test_coordinated_consumers_get_batches_of_the_same_length(address: str) -> None:
    consumers = [programs.coordinated(address, index, 2, 60) for index in range(2)]
    rounds = readers.run_concurrently(
        [lambda one=one: [next(one) for _ in range(12)] for one in consumers]
    )
    lengths = [[batch.shape[1] for batch in batches] for batches in rounds]
    assert lengths[0] == lengths[1]
    assert set(lengths[0]) == {1, 2, 3}
    first = np.concatenate([batch[:, 0] for batch in rounds[0]])
    second = np.concatenate([batch[:, 0] for batch in rounds[1]])
    assert first.tolist() != second.tolist()


@behaviour(
    Reference.SERVICE,
    shows='`compression=None` and `"AUTO"`',
    call=PLAIN,
)
@pytest.mark.parametrize("compression", [None, "AUTO"])
def test_compression_keeps_every_element(address: str, compression: str | None) -> None:
    dataset = numbers(ROWS).map(lambda n: tf.fill([1000], n))
    found = distributed(dataset, address, "distributed_epoch", compression=compression)
    assert sorted(int(row[999]) for row in found.as_numpy_iterator()) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`cross_trainer_cache`: trainers of one endless job share computed elements",
    call="`spec: {encryption: None, tfDataService: {crossTrainerCache: 256Mi}}`",
)
def test_trainers_share_a_cache(address: str) -> None:
    first = programs.cached(address, "one", 100)
    second = programs.cached(address, "two", 100)
    # Of two workers each makes all rows; one trainer after the other would share none without it.
    assert len(set(first) & set(second)) > 25


@behaviour(
    Reference.SERVICE,
    shows="`target_workers`: `AUTO`, `ANY`",
    call=PLAIN,
)
@pytest.mark.parametrize("target", ["AUTO", "ANY"])
def test_target_workers_reads_every_element(address: str, target: str) -> None:
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", target_workers=target)
    assert sorted(read(dataset)) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows='`target_workers="LOCAL"`: reads only from a worker in the program\'s process',
    call=PLAIN,
    note="The program starts this worker: a `WorkerServer` with the endpoint's address",
)
def test_a_program_reads_from_its_local_worker() -> None:
    with TfDataServiceServers(static=False) as own:
        dataset = distributed(numbers(ROWS), own.address, "parallel_epochs", target_workers="LOCAL")
        with pytest.raises(tf.errors.InvalidArgumentError, match="no local worker"):
            read(dataset)
        dispatcher = own.address.removeprefix("grpc://")
        local = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher))
        # There are three workers, and each would produce all elements.
        assert Counter(read(dataset)) == dict.fromkeys(range(ROWS), 1)
        del local


@behaviour(
    Reference.SERVICE,
    shows="snapshots with `distributed_save` and `Dataset.load(path, wait=True)`",
    call=PLAIN,
    note="`distributed_save` takes the address without `grpc://`",
)
def test_the_workers_save_a_snapshot(address: str, tmp_path: Path) -> None:
    path = str(tmp_path / "snapshot")
    tf.data.experimental.distributed_save(numbers(ROWS), path, address.removeprefix("grpc://"))
    loaded = tf.data.Dataset.load(path, wait=True)
    assert sorted(read(loaded)) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="the dispatcher restarts with its journal: readers continue, datasets stay registered",
    call=f"`{ENDPOINT}`: the journal is on a volume that survives the container",
)
def test_the_dispatcher_restarts_from_its_journal(servers: TfDataServiceServers) -> None:
    dataset = numbers(2000)
    identity = service.register_dataset(servers.address, dataset)
    running = iter(distributed(dataset, servers.address, "parallel_epochs"))
    before = [int(next(running)) for _ in range(100)]
    servers.restart_dispatcher()
    assert Counter([*before, *(int(row) for row in running)]) == dict.fromkeys(range(2000), WORKERS)
    again = service.from_dataset_id(
        "distributed_epoch", servers.address, identity, element_spec=dataset.element_spec
    )
    assert sorted(read(again)) == list(range(2000))


@behaviour(
    Reference.WRONG_USE,
    shows="tf.data service: an invalid `processing_mode` or address",
    call="`ValueError`, as in TensorFlow",
)
@pytest.mark.parametrize(
    ("mode", "address", "message"),
    [
        ("every_epoch", "grpc://127.0.0.1:1", "every_epoch"),
        ("parallel_epochs", "grpc://127.0.0.1://1", "Malformed"),
        ("parallel_epochs", "", "not be empty"),
    ],
)
def test_invalid_arguments_are_value_errors(mode: str, address: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed(numbers(ROWS), address, mode)


@behaviour(
    Reference.WRONG_USE,
    shows="tf.data service: an unknown dataset id",
    call=PLAIN,
)
def test_an_unknown_dataset_id_is_not_found(address: str) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="unknown-id"):
        read(
            service.from_dataset_id(
                "distributed_epoch",
                address,
                "unknown-id",
                element_spec=tf.TensorSpec([], tf.int64),
            )
        )
