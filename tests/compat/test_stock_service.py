"""tf.data service as TensorFlow has it, against the endpoint that an input's pods serve."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from tests.compat import stock_programs as programs
from tests.compat.behaviour import Reference, behaviour
from tests.compat.stock_programs import POLICIES, distributed, numbers, read, service
from tests.compat.stock_servers import WORKERS, StockServers
from tests.integration import reading

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
def test_policies_that_know_the_workers(address: str, policy: str, tmp_path: Path) -> None:
    for file in range(4):
        rows = range(file * 10, file * 10 + 10)
        (tmp_path / f"{file}.txt").write_text("".join(f"{row}\n" for row in rows))
    dataset = {
        "FILE": lambda: programs.lines(f"{tmp_path}/*.txt"),
        "DATA": lambda: numbers(ROWS),
        "FILE_OR_DATA": lambda: numbers(ROWS),
        "HINT": lambda: programs.hinted(ROWS),
    }[policy]()
    assert sorted(read(distributed(dataset, address, POLICIES[policy]))) == list(range(ROWS))


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
    rest = reading.at_once([lambda one=one: [int(v) for v in one] for one in pair])
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
    shows="`max_outstanding_requests` bounds what a consumer asks for at once",
    call=PLAIN,
)
def test_one_outstanding_request_is_enough(address: str) -> None:
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", max_outstanding_requests=1)
    assert sorted(read(dataset)) == list(range(ROWS))


@behaviour(
    Reference.SERVICE,
    shows="coordinated reads: `consumer_index`, `num_consumers`; a round is of one bucket",
    call=PLAIN,
)
def test_coordinated_consumers_get_batches_of_one_length(address: str) -> None:
    consumers = [programs.coordinated(address, index, 2, 60) for index in range(2)]
    rounds = reading.at_once([lambda one=one: [next(one) for _ in range(12)] for one in consumers])
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
    shows="`target_workers`: `AUTO`, `ANY`; `LOCAL` needs a worker in the trainer's own process",
    call=PLAIN,
)
@pytest.mark.parametrize("target", ["AUTO", "ANY"])
def test_target_workers(address: str, target: str) -> None:
    dataset = distributed(numbers(ROWS), address, "distributed_epoch", target_workers=target)
    assert sorted(read(dataset)) == list(range(ROWS))


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
