"""Rows of several sources arrive in the proportion of their weights, whatever dies or moves."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from distributed_input import ConfigError, PositionError, ReplayError
from distributed_input.api.proto import trainer_pb2
from testing.integration import readers
from testing.integration.cluster import Cluster, Sidecar, spec, temporary_sidecars
from testing.integration.readers import global_steps, ids

SIZES = {"books": 60, "code": 90, "web": 300}
WEIGHTS = {"books": 0.5, "code": 0.35, "web": 0.15}
STEPS, BATCH = 100, 20
FOUND: dict[str, list[list[int]]] = {}
"""Steps that do not depend on the number of trainers, which is a parameter of a test."""


def mixed(weights: Any = None, exhausted: str = "Repeat", **fields: Any) -> Any:
    mixture = {"weights": weights or WEIGHTS, "onExhausted": exhausted}
    mixture |= {"schedule": fields.pop("schedule")} if "schedule" in fields else {}
    shape = {"numSplits": 8, "partitions": 4, "globalBatchSize": BATCH, **fields}
    return spec("rows:mixed", {"sizes": SIZES}, mixture=mixture, **shape)


def sources(rows: Sequence[int]) -> list[int]:
    """Return the number of rows of each source."""
    found = Counter(row // 10_000 for row in rows)
    return [found[one] for one in range(len(SIZES))]


@pytest.fixture(scope="module")
def steps(shared: Cluster) -> list[list[int]]:
    """The rows of each step, as one trainer reads them without faults."""
    (sidecar,) = shared.add_sidecars({"mixed-1": mixed()})
    return global_steps([epochs[0] for epochs in readers.read([sidecar], steps=STEPS)])


def test_every_prefix_has_the_shares_and_no_row_twice_in_a_round(steps: list[list[int]]) -> None:
    for count in range(1, STEPS + 1):
        found = sources([row for step in steps[:count] for row in step])
        for rows, weight in zip(found, WEIGHTS.values(), strict=True):
            assert abs(rows - weight * count * BATCH) < 1
    times = Counter(row for step in steps for row in step)
    # 1,000 rows of books are 16.7 rounds, and 300 rows of web are one. A partition has an equal
    # part of the rows and of a source, but may be a few rows ahead of others.
    books = [times[row] for row in range(SIZES["books"])]
    assert min(books) >= 14
    assert max(books) <= 19
    assert max(number for row, number in times.items() if row >= 20_000) <= 2


@pytest.mark.parametrize("trainers", [2, 4])
def test_any_number_of_trainers_has_the_same_steps(
    cluster: Cluster, steps: list[list[int]], trainers: int
) -> None:
    sidecars = cluster.add_sidecars({f"mixed-{trainers}": mixed()}, trainers)
    read = readers.read(sidecars, steps=STEPS)
    assert global_steps([epochs[0] for epochs in read]) == steps


def test_a_killed_worker_and_a_restore_on_other_trainers_change_no_step(
    own_cluster: Cluster, steps: list[list[int]]
) -> None:
    first, _ = own_cluster.add_workers(2)
    inputs = {"mixed-restored": mixed()}
    with temporary_sidecars(own_cluster, inputs) as (sidecar,), readers.connect(sidecar) as data:
        batches = data.numpy()
        found = [sorted(ids([batch])) for batch in itertools.islice(batches, 25)]
        first.kill()
        found += [sorted(ids([batch])) for batch in itertools.islice(batches, 25)]
        saved = data.position()
        ids(itertools.islice(batches, 5))  # lost
    for trainers, number in ((4, 30), (2, 20)):
        with temporary_sidecars(own_cluster, inputs, trainers) as sidecars:
            calls = [lambda one=one: rest(one, saved, number) for one in sidecars]  # noqa: B023
            parts = readers.run_concurrently(calls)
        found += global_steps([batches for batches, _ in parts])
        saved = parts[1][1]  # of any trainer
    assert found == steps


def rest(sidecar: Sidecar, saved: bytes, number: int) -> tuple[list[Any], bytes]:
    with readers.connect(sidecar) as data:
        if saved:
            data.restore(saved)
        rows = data.numpy()
        batches = [readers.copy_batch(batch) for batch in itertools.islice(rows, number)]
        return batches, data.position()


def test_an_epoch_stops_with_the_last_whole_step_for_every_number_of_trainers(
    cluster: Cluster,
) -> None:
    found = []
    for trainers in (1, 4):
        sidecars = cluster.add_sidecars(
            {f"mixed-stop-{trainers}": mixed(exhausted="Stop")}, trainers
        )
        read = readers.read(sidecars, epochs=2)
        found.append([global_steps([epochs[at] for epochs in read]) for at in range(2)])
    assert found[0] == found[1]
    first, second = found[0]
    assert first != second
    for epoch in (first, second):
        rows = Counter(row for step in epoch for row in step)
        assert max(rows.values()) == 1
        assert sources(list(rows))[0] > SIZES["books"] - BATCH  # it gives the most for its size


def test_sources_that_have_ended_are_left_out_for_every_number_of_trainers(
    cluster: Cluster,
) -> None:
    found = []
    for trainers in (1, 4):
        inputs = {f"mixed-drop-{trainers}": mixed(exhausted="Drop")}
        sidecars = cluster.add_sidecars(inputs, trainers)
        read = readers.read(sidecars, epochs=2)
        found.append([global_steps([epochs[at] for epochs in read]) for at in range(2)])
    assert found[0] == found[1]
    first, second = found[0]
    assert first != second
    for epoch in (first, second):
        rows = Counter(row for step in epoch for row in step)
        assert max(rows.values()) == 1
        left = [size - n for size, n in zip(SIZES.values(), sources(list(rows)), strict=True)]
        assert max(left) < 2 * BATCH
        ends = [max(at for at, step in enumerate(epoch) if sources(step)[one]) for one in range(3)]
        assert ends[0] < ends[1] < ends[2] == len(epoch) - 1
        # Between the ends of books and code, these have the shares 0.7 and 0.3.
        between = sources([row for step in epoch[ends[0] + 1 : ends[1] - 1] for row in step])
        assert abs(between[1] - 0.7 * sum(between)) < 2


def test_a_restore_on_other_trainers_keeps_a_source_left_out(cluster: Cluster) -> None:
    inputs = {"mixed-dropped": mixed(exhausted="Drop")}
    with temporary_sidecars(cluster, inputs) as (sidecar,), readers.connect(sidecar) as data:
        steps = [sorted(ids([batch])) for batch in data.numpy()]
    last = max(at for at, step in enumerate(steps) if sources(step)[0])
    found, saved = [], b""
    for trainers, number in ((1, last + 1), (4, 2), (2, len(steps))):
        with temporary_sidecars(cluster, inputs, trainers) as sidecars:
            calls = [lambda one=one: rest(one, saved, number) for one in sidecars]  # noqa: B023
            parts = readers.run_concurrently(calls)
        found += global_steps([batches for batches, _ in parts])
        saved = parts[-1][1]
    assert found == steps


def test_other_weights_in_the_resource_count_from_the_restore_and_other_sources_are_refused(
    cluster: Cluster, steps: list[list[int]]
) -> None:
    with temporary_sidecars(cluster, {"mixed-changed": mixed()}) as (sidecar,):
        _, saved = first_steps(sidecar, 10)
    other = {"books": 0, "code": 1, "web": 3}
    with temporary_sidecars(cluster, {"mixed-changed": mixed(other)}) as (sidecar,):
        batches, _ = rest(sidecar, saved, 4)
        assert sources(ids(batches)) == [0, 20, 60]
    with temporary_sidecars(cluster, {"mixed-changed": mixed()}) as (sidecar,):
        batches, _ = rest(sidecar, saved, 4)
        assert [sorted(ids([batch])) for batch in batches] == steps[10:14]
        with readers.connect(sidecar) as data:
            data.restore(saved)
            with pytest.raises(PositionError, match="was not read yet"):
                data.set_weights(WEIGHTS)
            other_sources = trainer_pb2.Position.FromString(saved)
            other_sources.sources[0].name = "wikis"
            data.restore(other_sources.SerializeToString())
            with pytest.raises(PositionError, match="wikis"):
                next(data.numpy())


EIGHT = dict(zip("abcdefgh", (0.3, 0.25, 0.15, 0.1, 0.08, 0.06, 0.05, 0.01), strict=True))
CHANGES = (
    EIGHT,
    {**EIGHT, "a": 0.01, "h": 0.3},
    {**dict.fromkeys("abcdefgh", 0.1), "b": 0.3, "g": 0},
)
"""The weights of each 15 steps, which are 600 rows."""


def test_eight_sources_whose_weights_change_have_the_same_steps_under_faults(
    own_cluster: Cluster,
) -> None:
    changes = [{"step": 15 * at, "weights": weights} for at, weights in enumerate(CHANGES) if at]
    mixture = {"weights": CHANGES[0], "schedule": changes}
    sizes = {"sizes": {name: 40 + 30 * at for at, name in enumerate(EIGHT)}}
    shape = {"numSplits": 4, "partitions": 4, "globalBatchSize": 40, "readAhead": 1}
    inputs = {"eight": spec("rows:mixed", sizes, mixture=mixture, **shape)}
    first, _ = own_cluster.add_workers(2)
    with temporary_sidecars(own_cluster, inputs) as (sidecar,), readers.connect(sidecar) as data:
        steps = [sorted(ids([one])) for one in itertools.islice(data.numpy(), 45)]
    for at, weights in enumerate(CHANGES):
        rows = Counter(row // 10_000 for step in steps[15 * at : 15 * at + 15] for row in step)
        total = sum(weights.values())
        for number, weight in enumerate(weights.values()):
            assert abs(rows[number] - 600 * weight / total) <= 1

    (sidecar,) = own_cluster.add_sidecars(inputs)
    with readers.connect(sidecar) as data:
        batches = data.numpy()
        found = [sorted(ids([one])) for one in itertools.islice(batches, 8)]
        first.kill()
        found += [sorted(ids([one])) for one in itertools.islice(batches, 5)]
        own_cluster.dispatcher.kill()
        found += [sorted(ids([one])) for one in itertools.islice(batches, 5)]
        own_cluster.restart_dispatcher()
        sidecar.kill()
        (sidecar,) = own_cluster.add_sidecars(inputs, folder=sidecar.shared)
        found += [sorted(ids([one])) for one in itertools.islice(batches, 7)]
        saved = data.position()
        ids(itertools.islice(batches, 3))  # lost
    own_cluster.remove([sidecar])
    with temporary_sidecars(own_cluster, inputs, 4) as sidecars:
        calls = [lambda one=one: rest(one, saved, 20) for one in sidecars]
        found += global_steps([batches for batches, _ in readers.run_concurrently(calls)])
    assert found == steps


def first_steps(sidecar: Sidecar, number: int) -> tuple[list[Any], bytes]:
    with readers.connect(sidecar) as data:
        rows = data.numpy()
        batches = [readers.copy_batch(batch) for batch in itertools.islice(rows, number)]
        return batches, data.position()


def test_a_schedule_changes_the_weights_at_its_step(cluster: Cluster) -> None:
    schedule = [{"step": 5, "weights": {"books": 0, "code": 0, "web": 1}}]
    (sidecar,) = cluster.add_sidecars({"mixed-schedule": mixed(schedule=schedule)})
    batches, _ = first_steps(sidecar, 10)
    assert sources(ids(batches[:5])) == [50, 35, 15]
    assert sources(ids(batches[5:])) == [0, 0, 100]


@pytest.mark.parametrize("trainers", [1, 2])
def test_weights_that_the_program_sets_hold_from_the_next_step_on_and_after_a_restore(
    cluster: Cluster, steps: list[list[int]], trainers: int
) -> None:
    changes: list[dict[str, float]] = [
        {"books": 0, "code": 0.5, "web": 0.5},
        {"books": 1, "code": 0, "web": 0},
        WEIGHTS,
    ]

    def train(sidecar: Sidecar) -> tuple[list[Any], bytes]:
        found: list[Any] = []
        with readers.connect(sidecar) as data:
            with pytest.raises(PositionError, match="was not read yet"):
                data.set_weights(WEIGHTS)
            for weights in changes:
                found += map(readers.copy_batch, itertools.islice(data.numpy(), 10))
                with pytest.raises(ConfigError, match="the sources are books, code, web"):
                    data.set_weights({"books": 1})
                data.set_weights(weights)
            found += map(readers.copy_batch, itertools.islice(data.numpy(), 5))
            saved = data.position()
            assert len(trainer_pb2.Position.FromString(saved).weights) == 1  # it does not grow
            return found, saved

    inputs = {f"mixed-set-{trainers}": mixed()}
    sidecars = cluster.add_sidecars(inputs, trainers)
    parts = readers.run_concurrently([lambda one=one: train(one) for one in sidecars])
    found = global_steps([batches for batches, _ in parts])
    assert found[:10] == steps[:10]
    shares = [sources([row for step in found[at : at + 10] for row in step]) for at in (10, 20)]
    assert shares == [[0, 100, 100], [200, 0, 0]]
    cluster.remove(sidecars)
    with temporary_sidecars(cluster, inputs, 4) as others:
        calls = [lambda one=one: rest(one, parts[-1][1], 5) for one in others]
        after = readers.run_concurrently(calls)
    found += global_steps([batches for batches, _ in after])
    assert sources([row for step in found[30:] for row in step]) == [100, 70, 30]
    assert found == FOUND.setdefault("set", found)  # for any number of trainers


def test_trainers_that_set_different_weights_get_an_error_that_names_both(cluster: Cluster) -> None:
    def train(sidecar: Sidecar, weights: dict[str, float]) -> None:
        with readers.connect(sidecar) as data:
            assert len(list(itertools.islice(data.numpy(), 5))) == 5
            data.set_weights(weights)
            with pytest.raises(
                ReplayError, match=r"step 5: .* books 1, code 0, web 0.*set_weights"
            ):
                for _ in data.numpy():
                    pass

    sidecars = cluster.add_sidecars({"mixed-disputed": mixed()}, 2)
    given = [{"books": 1, "code": 0, "web": 0}, {"books": 0, "code": 0, "web": 1}]
    readers.run_concurrently(
        [lambda each=each: train(*each) for each in zip(sidecars, given, strict=True)]
    )
