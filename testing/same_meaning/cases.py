"""A case: a pipeline, and how it is read. It is drawn from a seed, and written as JSON or text."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import tensorflow as tf

from testing.same_meaning.pipelines import functions, grammar, python_sources
from testing.same_meaning.pipelines.grammar import Draw, Pipeline

PLAIN, FUNCTION, ENTRY = "plain", "function", "entry"
ENTRY_POINT = "testing.same_meaning.cases:entry_point"
_DEPTH = 2
_BATCHED_FILES = 0.15  # share of plain datasets that are files and a batch
_CHOOSING = 0.15  # share of functions whose random choices are compared between splits
_NAMES = {"tf": tf, "D": tf.data.Dataset, "f": functions, "p": python_sources}


@dataclass(frozen=True)
class Case:
    """One case.

    Attributes:
        pipeline: see `grammar`.
        api: the trainer passes a dataset (plain) or a dataset_fn (function), or the resource names
            an entry point (entry).
        read: numpy, dataset or distribute.
        trainers: number of trainers.
        replicas: replicas of each trainer, for distribute.
        epochs: epochs to read.
        global_batch: argument of `get_per_replica_batch_size`, if the pipeline calls it.
        fields: of the resource's spec.
        fault: what happens in the middle; "" for nothing.
        at: number of steps before the fault.
    """

    pipeline: Pipeline
    api: str = PLAIN
    read: str = "dataset"
    trainers: int = 1
    replicas: int = 1
    epochs: int = 1
    global_batch: int = 0
    fields: dict[str, Any] = field(default_factory=dict)
    fault: str = ""
    at: int = 0

    def to_json(self) -> str:
        """Return the case as one line of JSON, without default values."""
        default = asdict(Case({}))
        values = {k: v for k, v in asdict(self).items() if k == "pipeline" or v != default[k]}
        return json.dumps(values)

    @staticmethod
    def from_json(data: str) -> Case:
        """Return the case of `to_json`."""
        return Case(**json.loads(data))

    @property
    def text(self) -> str:
        """The pipeline as Python text."""
        return grammar.text(self.pipeline).replace("GLOBAL_BATCH", str(self.global_batch))

    def build(self, context: tf.distribute.InputContext | None) -> tf.data.Dataset:
        """Build the dataset, for an input context or as a plain dataset."""
        return build(self.text, context)


@tf.autograph.experimental.do_not_convert  # converting takes longer than all the rest of a case
def build(text: str, context: Any) -> tf.data.Dataset:
    """Build a dataset from the text of a pipeline."""
    made: tf.data.Dataset = eval(text, _NAMES | {"context": context})
    return made


def entry_point(context: tf.distribute.InputContext, text: str) -> tf.data.Dataset:
    """Build a dataset, as the entry point of a resource."""
    return build(text, context)


def draw(seed: int, attempt: int = 0, faults: bool = False, small: bool = False) -> Case:
    """Return the case of a seed. TensorFlow may refuse its pipeline: then try another attempt.

    Args:
        seed: the seed.
        attempt: number of the attempt.
        faults: with a fault in the middle.
        small: with at most two transformations.
    """
    one = Draw(f"same meaning {seed} {attempt}")
    dice = one.dice
    api = dice.choice((PLAIN, PLAIN, PLAIN, FUNCTION, ENTRY))
    is_python = api == ENTRY and dice.random() < 0.4
    depth = 1 if small or dice.random() < 0.8 else _DEPTH
    pipeline = one.python() if is_python else one.pipeline(depth, 2 if small else 4)
    trainers = dice.choice((1, 1, 1, 1, 2, 3))
    partitions = trainers * one.pick(1, 1, 2) if trainers > 1 else int(one.pick(1, 2, 2, 3))
    global_batch = partitions * _drawn_batch(one, pipeline, api, is_python)
    fields = _drawn_fields(one, api, trainers, partitions, global_batch)
    if api == PLAIN and dice.random() < _BATCHED_FILES:
        pipeline = _batched_files(one)
    if api != PLAIN and not is_python:
        if dice.random() < _CHOOSING:
            pipeline = _choosing(one, fields["numSplits"])
        else:
            _insert_shard(one, pipeline)
    read = dice.choice(("numpy",) * 6 + ("dataset",) * 3 + ("distribute",) * 2)
    case = Case(
        pipeline=pipeline,
        api=api,
        read=read,
        trainers=trainers,
        # Of several mirrored trainers in one process, TensorFlow ends some at the end of others.
        replicas=dice.choice((1, 2)) if read == "distribute" and trainers == 1 else 1,
        epochs=dice.choice((1, 1, 1, 2)),
        global_batch=global_batch,
        fields=fields,
    )
    if faults:
        kind = dice.choice(("worker", "restore", "restore", "restore_new", "again"))
        epochs = 1 if kind.startswith("restore") else case.epochs
        case = replace(case, fault=kind, at=dice.choice((0, 1, 2, 3, 5)), epochs=epochs)
    return case


def _choosing(one: Draw, splits: int) -> Pipeline:
    """Draw a pipeline that draws many random numbers behind the shard, one for each row.

    Each split has as many rows as `order` needs to judge it.
    """
    start = one.pick(0, 1000)

    def part(number: int, rows: int) -> Pipeline:
        first = start + 10_000 * number
        return {"source": ["range", first, first + rows * splits], "ops": [["shard"]]}

    seed = one.pick(None, None, 7)
    kind = one.pick("shuffle", "sample", "choose_random", "resample_uneven")
    if kind == "shuffle":
        whole = part(0, 24)
        whole["ops"].append([kind, one.pick(16, 100, 1000), seed, one.pick(None, True, False)])
    elif kind == "resample_uneven":
        whole = part(0, 90)
        whole["ops"].append([kind, seed])
    else:
        weights = [[0.5, 0.5], seed, True] if kind == "sample" else [seed]
        whole = {"source": [kind, [part(0, 45), part(1, 45)], *weights], "ops": []}
    if one.dice.random() < 0.3:
        whole["ops"].append(one.pick(["map", "add", None, None], ["prefetch", 1]))
    return whole


def _batched_files(one: Draw) -> Pipeline:
    """Draw a reader of files with a batch, which may be split by its files, or must not."""
    name = one.pick("text", "tfrecord", "fixed", "sorted_files")
    batch = [one.pick("batch", "batch", "ragged_batch"), one.pick(2, 3, 4), one.pick(True, False)]
    maps = [["map", "add", None, None]], [["map", "total", None, None]]
    behind = one.pick([], *maps, [["map", "total", 2, None]], [["enumerate"]], [["skip", 1]])
    return {"source": [name, *grammar.SOURCES[name].draw(one, 0)], "ops": [batch, *behind]}


def _drawn_batch(one: Draw, pipeline: Pipeline, api: str, is_python: bool) -> int:
    """Let some functions batch by the context; return the rows per partition, or 0."""
    if is_python:
        return int(one.pick(1, 2, 4)) if pipeline["source"][1] == "batches" else 0
    if api == PLAIN or one.dice.random() < 0.6:
        return 0
    name = one.pick(
        "replica_batch", "replica_batch", "replica_batch", "replica_padded", "replica_ragged"
    )
    pipeline["ops"].append([name])
    return int(one.pick(1, 2, 2, 4, 4))


def _drawn_fields(
    one: Draw, api: str, trainers: int, partitions: int, global_batch: int
) -> dict[str, Any]:
    dice = one.dice
    fields: dict[str, Any] = {}
    if not global_batch and dice.random() < 0.45:
        fields["globalBatchSize"] = partitions * one.pick(1, 2, 2, 4, 4)
    # Defaults would trace a function 32 times, here and in the reference.
    if api != PLAIN or trainers > 1 or dice.random() < 0.9:
        fields["partitions"] = partitions
    if api != PLAIN or dice.random() < 0.7:
        fields["numSplits"] = partitions + one.pick(0, 0, 0, 1, 2)
    if (global_batch or "globalBatchSize" in fields) and dice.random() < 0.3:
        fields["remainder"] = one.pick("Drop", "Pad")
    return fields


def _insert_shard(one: Draw, pipeline: Pipeline) -> None:
    """Shard by the context, mostly: at the source, behind some ops, or the names of files."""
    name, *args = pipeline["source"]
    if name in ("sorted_files", "file_names") and one.dice.random() < 0.7:
        pipeline["source"] = ["sharded_files", *args]
    elif one.dice.random() < 0.93:
        most = len(pipeline["ops"])
        pipeline["ops"].insert(one.pick(0, 0, one.dice.randint(0, most)), ["shard"])


def without(case: Case, names: Sequence[str], instead: dict[str, str]) -> Case:
    """Return a case without some transformations, and with other sources."""

    def change(value: Any) -> Any:
        if isinstance(value, list):
            return [change(one) for one in value]
        if not isinstance(value, dict):
            return value
        name, *args = value["source"]
        source = [instead.get(name, name), *args[:1]] if name in instead else [name, *args]
        ops = [op for op in value["ops"] if op[0] not in names]
        return {"source": change(source), "ops": change(ops)}

    return replace(case, pipeline=change(case.pipeline))
