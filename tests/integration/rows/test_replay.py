"""Rows that are computed again from a position are those that trainers were given, bit for bit."""

from __future__ import annotations

import random
from itertools import islice
from pathlib import Path
from threading import Barrier
from typing import Any

import numpy as np
import pytest
import yaml

from distributed_input import cli
from distributed_input.api.config import InputConfig
from distributed_input.trainer import position_log
from distributed_input.worker.replay import EpochRows
from distributed_input.worker.replay_process import arrays_of
from testing.integration import readers
from testing.integration.cluster import DATASETS, Cluster, Part, Sidecar, spec
from testing.integration.datasets import corrupt

ROWS, BATCH, SAVED = 800, 32, 9
FIELDS: dict[str, Any] = {"numSplits": 8, "partitions": 4, "globalBatchSize": BATCH, "seed": 3}
ARGS = {"rows": ROWS, "global_batch": BATCH}
Arrays = dict[str, np.ndarray[Any, Any]]
Batches = list[Arrays]
pytestmark = pytest.mark.filterwarnings("ignore::UserWarning")


@pytest.fixture(autouse=True)
def _modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(DATASETS))


def read(
    sidecars: list[Sidecar], name: str, worker: Part | None = None
) -> tuple[list[Batches], list[bytes]]:
    """Read an epoch and a half with two trainers. One trainer kills a worker.

    Return the batches of the second epoch of each trainer, and a position within it.
    """
    together = Barrier(len(sidecars))

    def one(at: int, sidecar: Sidecar) -> tuple[Batches, bytes]:
        with readers.connect(sidecar, name, timeout=60.0) as data:
            list(data.numpy())
            batches = iter(data.numpy())
            found = [copied(batch) for batch in islice(batches, SAVED)]
            position = data.position()
            if at == 0 and worker is not None:
                worker.kill()
            found += [copied(batch) for batch in batches]
            together.wait(readers.SECONDS)
        return found, position

    calls = [lambda at=at, s=s: one(at, s) for at, s in enumerate(sidecars)]
    found = readers.run_concurrently(calls)
    return [batches for batches, _ in found], [position for _, position in found]


def copied(batch: Any) -> Arrays:
    """Return a copy of a batch: its memory is used again."""
    parts = batch if isinstance(batch, dict) else {"value": batch}
    return {name: np.array(part) for name, part in parts.items()}


def test_replayed_steps_are_those_that_were_delivered(own_cluster: Cluster, tmp_path: Path) -> None:
    worker, _ = own_cluster.add_workers(2)
    corrupt.write(tmp_path, "jsonl", 8, 100)
    bad = {"badRecords": {"onError": "Skip"}}
    inputs = {
        "train": spec("rows:augmented", ARGS, **FIELDS),
        "bad": spec("corrupt:jsonl", {"folder": str(tmp_path), "batch": BATCH}, **FIELDS, **bad),
    }
    sidecars = own_cluster.add_sidecars(inputs, 2)
    for name, config in inputs.items():
        delivered, saved = read(sidecars, name, worker if name == "train" else None)
        steps = random.Random(0).sample(range(len(delivered[0])), 8)
        position = position_log.parse(saved[name == "train"])  # of either trainer
        epoch = EpochRows(position, InputConfig.from_json(config))
        for trainer, batches in enumerate(delivered):
            ranges = [one for step in steps for one in epoch.ranges(step, trainer)]
            rows = sum(part.rows for part in ranges)
            made = arrays_of(epoch.row, rows, epoch.read(ranges))
            check_equal(made, joined([batches[step] for step in steps]))
        if name == "train":
            check_command(tmp_path, saved[1], delivered)


def check_command(folder: Path, position: bytes, delivered: list[Batches]) -> None:
    """Check what the command saves of a step."""
    (folder / "position").write_bytes(position)
    source = {"type": "Path", "path": str(DATASETS)}
    entry = {"function": "rows:augmented", "args": ARGS, "source": source}
    fields = {key: value for key, value in FIELDS.items() if key != "globalBatchSize"}
    resource = {
        "apiVersion": "distributed-input.dev/v1beta1",
        "kind": "DistributedInput",
        "metadata": {"name": "train"},
        "spec": {"dataset": {"type": "EntryPoint", "entryPoint": entry}, **fields},
    }
    (folder / "input.yaml").write_text(yaml.safe_dump(resource))
    files = ["--position", str(folder / "position"), "--input", str(folder / "input.yaml")]
    assert cli.main(["rows", *files, "--steps", "3", "--save", str(folder / "step.npz")]) == 0
    with np.load(folder / "step.npz") as found:
        both = joined([batches[3] for batches in delivered])
        check_equal({name: found[name] for name in both}, both)
        assert found["lineage.step"].tolist() == [3] * BATCH


def joined(batches: Batches) -> Arrays:
    return {name: np.concatenate([batch[name] for batch in batches]) for name in batches[0]}


def check_equal(made: Arrays, given: Arrays) -> None:
    assert made.keys() == given.keys()
    for name, values in given.items():
        assert made[name].dtype == values.dtype
        if values.dtype == object:  # its bytes are addresses of strings
            assert made[name].tolist() == values.tolist(), name
        else:
            assert made[name].tobytes() == values.tobytes(), name


MIXED = {"books": [5, 0, 9, 4], "code": [20, 11, 3, 7], "web": [40, 40, 40, 40]}


def read_mixed(
    sidecars: list[Sidecar], position: bytes | None, steps: int
) -> tuple[list[Batches], bytes]:
    """Read steps of a mixture, whose rows carry their names. Return those of each trainer."""

    def one(sidecar: Sidecar) -> tuple[Batches, bytes]:
        with readers.connect(sidecar, "mixed", timeout=60.0, lineage=True) as data:
            if position is not None:
                data.restore(position)
            found = []
            for batch in islice(data.numpy(), steps):
                found.append(copied(batch))
                names = data.lineage()
                assert names.source.astype(bytes).tolist() == batch["source"].tolist()
                assert np.stack(names[1:], axis=1).tolist() == batch["name"].tolist()
            return found, data.position()

    parts = readers.run_concurrently([lambda sidecar=s: one(sidecar) for s in sidecars])
    return [found for found, _ in parts], parts[-1][1]


def test_the_rows_of_a_mixture_have_their_source_and_follow_from_its_positions(
    own_cluster: Cluster,
) -> None:
    worker, _ = own_cluster.add_workers(2)
    mixture = {"weights": {"books": 0.5, "code": 0.3, "web": 0.2}}
    shape = {"numSplits": 4, "partitions": 2, "globalBatchSize": 16}
    one = spec("self_named:mixed", {"sizes": MIXED}, mixture=mixture, **shape)
    pair = own_cluster.add_sidecars({"mixed": one}, 2)
    first, position = read_mixed(pair, None, 6)
    worker.kill()
    then, position = read_mixed(pair, position, 4)
    own_cluster.remove(pair)
    last, after = read_mixed(own_cluster.add_sidecars({"mixed": one}), position, 5)

    config = InputConfig.from_json(one)
    delivered = [[*a, *b] for a, b in zip(first, then, strict=True)]
    epoch = EpochRows(position_log.parse(position), config)
    assert position_log.parse(position).trainers_since == 6
    for trainer, batches in enumerate(delivered):
        ranges = [one for step in range(6, 10) for one in epoch.ranges(step, trainer)]
        check_equal(made(epoch, ranges), joined(batches[6:]))  # since the restore
    both = EpochRows(position_log.parse(after), config)
    steps = [joined([one[step] for one in delivered]) for step in range(10)] + last[0]
    keys = [sorted(step["key"].tolist()) for step in steps]
    for each in (epoch, both):
        found = made(each, [one for step in range(len(steps)) for one in each.ranges(step)])["key"]
        assert [sorted(one) for one in found.reshape(len(steps), -1).tolist()] == keys
    for key in (keys[2][0], keys[14][3]):
        hits = [one.step for one in both.find("key", key.decode()) if one.step is not None]
        assert hits == [step for step, one in enumerate(keys) for other in one if other == key]


def made(epoch: EpochRows, ranges: list[Any]) -> Arrays:
    return arrays_of(epoch.row, sum(one.rows for one in ranges), epoch.read(ranges))
