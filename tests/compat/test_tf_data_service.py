"""tf.data service as TensorFlow has it, against the endpoint that an input's pods serve."""

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
from testing.compat.row_count_metric import Rows
from testing.compat.tf_data_service_programs import POLICIES, distributed, numbers, read, service
from testing.compat.tf_data_service_servers import WORKERS, StockServers
from testing.integration import readers
from testing.integration.devices import CPUS

ROWS = 40
ENDPOINT = "spec: {tfDataService: {}}"
PLAIN = f"`{ENDPOINT}`; `$DISTRIBUTED_INPUT_TF_DATA_SERVICE` is its address"


@pytest.fixture(scope="module")
def servers() -> Iterator[StockServers]:
    with StockServers() as made:
        yield made


@pytest.fixture(scope="module")
def address(servers: StockServers) -> str:
    return servers.address


@behaviour(
    Reference.SERVICE,
    shows="an unmodified program: TensorFlow is all that it imports",
    call=PLAIN,
)
def test_the_programs_import_nothing_of_ours() -> None:
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
    shows='`processing_mode="parallel_epochs"`: every worker gives the whole dataset',
    call=PLAIN,
)
def test_parallel_epochs_give_everything_once_for_each_worker(address: str) -> None:
    found = Counter(read(distributed(numbers(ROWS), address, "parallel_epochs")))
    assert found == dict.fromkeys(range(ROWS), WORKERS)


@behaviour(
    Reference.SERVICE,
    shows='`processing_mode="distributed_epoch"`: every element once',
    call=PLAIN,
    note="once, as long as no worker dies",
)
def test_a_distributed_epoch_gives_everything_once(address: str) -> None:
    assert sorted(read(distributed(numbers(ROWS), address, "distributed_epoch"))) == list(
        range(ROWS)
    )


@behaviour(
    Reference.SERVICE,
    shows="`distributed_epoch` of a source that cannot be split is refused, `parallel_epochs` of it"
    " is not",
    call=PLAIN,
)
def test_a_source_that_cannot_be_split(address: str, tmp_path: Path) -> None:
    (tmp_path / "rows.txt").write_text("".join(f"{row}\n" for row in range(ROWS)))
    dataset = programs.one_file(str(tmp_path / "rows.txt"))
    with pytest.raises(tf.errors.UnimplementedError, match="split provider"):
        read(distributed(dataset, address, "distributed_epoch"))
    found = Counter(read(distributed(dataset, address, "parallel_epochs")))
    assert found == dict.fromkeys(range(ROWS), WORKERS)


@behaviour(
    Reference.SERVICE,
    shows="what stands before `distribute` runs in the workers, what stands after it in the"
    " program: `[1, 1, 2, 2, 5, 5, 10, 10, 17, 17]`",
    call=PLAIN,
)
def test_before_and_after(servers: StockServers) -> None:
    found = programs.before_and_after(servers.address)
    assert found == [1, 1, 2, 2, 5, 5, 10, 10, 17, 17]
    workers = {str(part.pid) for part in servers.workers}
    for before, after in programs.where_it_runs(servers.address):
        assert len(ids_in(before) & workers) == 1
        assert str(os.getpid()) in ids_in(after)


def ids_in(threads: Iterable[bytes]) -> set[str]:
    """Of `programs.threads`; the first thread's is the process's."""
    return {path.decode().rpartition("/")[2] for path in threads}


@behaviour(
    Reference.SERVICE,
    shows="Keras: `model.fit` of a dataset that was distributed",
    call=PLAIN,
)
@pytest.mark.filterwarnings("ignore:Your input ran out of data")  # whose cardinality is unknown
def test_fit_reads_a_distributed_dataset(address: str) -> None:
    model = keras.Sequential([keras.layers.Input([1]), keras.layers.Dense(1)])
    model.compile(optimizer="sgd", loss="mse", metrics=[Rows()])
    rows = numbers(ROWS).map(lambda row: (tf.cast([row], tf.float32), [0.0])).batch(8)
    history = model.fit(distributed(rows, address, "distributed_epoch"), epochs=2, verbose=0)
    assert history.history["rows"] == [ROWS] * 2


@behaviour(
    Reference.SERVICE,
    shows="`experimental_distribute_dataset` of a dataset that was distributed under a `job_name`",
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
def test_policies_that_ask_for_nothing(address: str, policy: str) -> None:
    found = Counter(read(distributed(numbers(ROWS), address, POLICIES[policy])))
    assert found == dict.fromkeys(range(ROWS), WORKERS if policy == "OFF" else 1)


@behaviour(
    Reference.SERVICE,
    shows="`ShardingPolicy.FILE`, `DATA`, `FILE_OR_DATA` and `HINT`: a share for each worker",
    call="`spec: {tfDataService: {staticSharding: true}}`",
)
@pytest.mark.parametrize("policy", ["FILE", "DATA", "FILE_OR_DATA", "HINT"])
def test_policies_that_know_the_workers(servers: StockServers, policy: str, tmp_path: Path) -> None:
    for file in range(4):
        rows = range(file * 10, file * 10 + 10)
        (tmp_path / f"{file}.txt").write_text("".join(f"{row}\n" for row in rows))
    dataset = {
        "FILE": lambda: programs.lines(f"{tmp_path}/*.txt"),
        "DATA": lambda: numbers(ROWS),
        "FILE_OR_DATA": lambda: numbers(ROWS),
        "HINT": lambda: programs.hinted(ROWS),
    }[policy]()
    dataset = distributed(programs.with_makers(dataset), servers.address, POLICIES[policy])
    shares: dict[str, list[int]] = {str(part.pid): [] for part in servers.workers}
    for row, threads in dataset.as_numpy_iterator():
        (maker,) = shares.keys() & ids_in(threads)
        shares[maker].append(int(row))
    one, other = (sorted(share) for share in shares.values())
    # Whole files of ten, every other one; or else every other row.
    size = 10 if policy == "FILE" else 1
    assert sorted(one + other) == list(range(ROWS))
    for share in (one, other):
        assert len({row // size % WORKERS for row in share}) == 1


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
    shows="`job_name`: consumers of one name share one pass",
    call=PLAIN,
)
def test_consumers_of_one_job_name_share_its_elements(address: str) -> None:
    pair = [
        iter(distributed(numbers(400), address, "distributed_epoch", job_name="shared"))
        for _ in range(2)
    ]
    first = [int(next(pair[0])), int(next(pair[1]))]
    rest = readers.run_concurrently([lambda one=one: [int(v) for v in one] for one in pair])
    assert sorted([*first, *rest[0], *rest[1]]) == list(range(400))


@behaviour(
    Reference.SERVICE,
    shows="`job_name`: one that is finished gives no more; the same iterator's next pass does",
    call=PLAIN,
)
def test_a_job_name_is_used_again(address: str) -> None:
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
def test_consumers_of_one_job_name_share_every_pass(address: str) -> None:
    def passes() -> list[list[int]]:
        dataset = distributed(numbers(ROWS), address, "distributed_epoch", job_name="three")
        return [read(dataset) for _ in range(3)]

    for one, other in zip(*readers.run_concurrently([passes, passes]), strict=True):
        assert sorted(one + other) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`max_outstanding_requests` bounds what a consumer asks for at once",
    call=PLAIN,
)
def test_requests_outstanding_are_bounded(address: str, tmp_path: Path) -> None:
    leads = {}
    for most in (1, 64):
        folder = tmp_path / str(most)
        folder.mkdir()
        dataset = distributed(
            programs.noted(100, str(folder)),
            address,
            "distributed_epoch",
            max_outstanding_requests=most,
        )
        rows, made = [], []
        for row in dataset.as_numpy_iterator():
            rows.append(int(row))
            made.append(len(list(folder.iterdir())) - len(rows))
            time.sleep(0.01)  # the workers are quicker than this trainer
        assert sorted(rows) == list(range(100))
        leads[most] = max(made)
    # Beside what is asked for, each worker has a few elements of its own ready.
    assert leads[1] < 20 < leads[64]


@behaviour(
    Reference.SERVICE,
    shows="coordinated reads: `consumer_index`, `num_consumers`; a round is of one bucket",
    call=PLAIN,
)
def test_coordinated_consumers_get_batches_of_one_length(address: str) -> None:
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
def test_compression(address: str, compression: str | None) -> None:
    dataset = numbers(ROWS).map(lambda n: tf.fill([1000], n))
    found = distributed(dataset, address, "distributed_epoch", compression=compression)
    assert sorted(int(row[999]) for row in found.as_numpy_iterator()) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="`cross_trainer_cache`: trainers of one endless job read what was made once",
    call="`spec: {tfDataService: {crossTrainerCache: 256Mi}}`",
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
def test_target_workers(address: str, target: str) -> None:
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", target_workers=target)
    assert sorted(read(dataset)) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows='`target_workers="LOCAL"`: from a worker in the program\'s own process alone',
    call=PLAIN,
    note="The program starts that worker itself: a `WorkerServer` with the endpoint's address",
)
def test_the_program_is_a_worker_itself() -> None:
    with StockServers(static=False) as own:
        dataset = distributed(numbers(ROWS), own.address, "parallel_epochs", target_workers="LOCAL")
        with pytest.raises(tf.errors.InvalidArgumentError, match="no local worker"):
            read(dataset)
        dispatcher = own.address.removeprefix("grpc://")
        local = service.WorkerServer(service.WorkerConfig(dispatcher_address=dispatcher))
        # Of three workers, each of which would give everything.
        assert Counter(read(dataset)) == dict.fromkeys(range(ROWS), 1)
        del local


@behaviour(
    Reference.SERVICE,
    shows="snapshots by `distributed_save`, read by `Dataset.load(path, wait=True)`",
    call=PLAIN,
    note="`distributed_save` takes the address without `grpc://`",
)
def test_a_snapshot_is_saved_by_the_workers(address: str, tmp_path: Path) -> None:
    path = str(tmp_path / "snapshot")
    tf.data.experimental.distributed_save(numbers(ROWS), path, address.removeprefix("grpc://"))
    loaded = tf.data.Dataset.load(path, wait=True)
    assert sorted(read(loaded)) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="the dispatcher restarts with its journal: readers go on, datasets are known",
    call=f"`{ENDPOINT}`: the journal is on a volume that outlives the container",
)
def test_the_dispatcher_goes_on_from_its_journal(servers: StockServers) -> None:
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
    shows="tf.data service: a `processing_mode` or an address that is none",
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
def test_wrong_arguments(mode: str, address: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        distributed(numbers(ROWS), address, mode)


@behaviour(
    Reference.WRONG_USE,
    shows="tf.data service: a dataset id that nobody registered",
    call=PLAIN,
)
def test_an_unknown_dataset_id_is_not_found(address: str) -> None:
    with pytest.raises(tf.errors.NotFoundError, match="nobody"):
        read(
            service.from_dataset_id(
                "distributed_epoch",
                address,
                "nobody",
                element_spec=tf.TensorSpec([], tf.int64),
            )
        )
