"""Sharding of datasets into splits: by files, by elements, or not at all.

FILE sharding is prepared once, in the trainer: TensorFlow finds the readers and inserts a shard op
before each. These ops are marked in the graph, so that a split sets its index on them and never on
a shard op of the user. Unlike TensorFlow's, these shards may be empty.

`dataset.shard(n, i)` after a reader or a function keeps one of n records. What comes before it is
the same dataset in all splits, so a worker can read the records once for all splits that it runs.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import tensorflow as tf
from tensorflow.python.data.experimental.ops import distribute

from distributed_input.api.errors import ConfigError, DatasetFnError
from distributed_input.graph.analysis import batches, file_splits
from distributed_input.graph.analysis.file_splits import SHARD_MARK
from distributed_input.graph.analysis.graph_analysis import analyze
from distributed_input.graph.definition import caches, node_defs, serialization
from distributed_input.graph.definition.canonical import canonicalize, serialize
from distributed_input.graph.definition.datasets import PASSES, Scope, kind, main_scope
from distributed_input.graph.definition.node_defs import PYTHON_OPS, GraphDef, NodeDef

# Numbers that users do not shard by: they identify the shard ops that TensorFlow inserted.
_NUM, _INDEX = 1_597_463_007, 1_597_463_001
_COUNT_LIMIT = 1_000_000
_MAY_DIFFER = caches.OPS | PYTHON_OPS | {"ShardDataset"}  # between splits
_UNSHARDABLE = (
    "In AUTO-mode, and switching to DATA-based sharding, instead of FILE-based sharding as we"
    " cannot find appropriate reader dataset op(s) to shard. Consider either turning off"
    " auto-sharding or switching the auto_shard_policy to DATA to shard this dataset. You can do"
    " this by creating a new `tf.data.Options()` object then setting"
    " `options.experimental_distribute.auto_shard_policy = AutoShardPolicy.DATA` before applying"
    " the options object to the dataset via `dataset.with_options(options)`."
)
_ENTRY_POINT = (
    "name an entry point that selects files by its input context, which reads each file once"
)
_OWN_BATCHES = (
    "{op} gets the batches that each split makes of its own files. If a row's value depends on the"
    " other rows of its batch, it differs from that in one process"
)


@dataclass(frozen=True)
class ShardableGraph:
    """A plain dataset that `shard` can split.

    `policy` is the one that is applied: FILE, DATA or OFF. `files` is the number of files for FILE
    sharding, if it is known.
    """

    graph_def: GraphDef
    policy: str
    files: int | None = None
    warnings: tuple[str, ...] = ()


def prepare(dataset: tf.data.Dataset, partitions_of: Callable[[int | None], int]) -> ShardableGraph:
    """Prepare a plain dataset for the auto-shard policy in its options.

    `partitions_of` returns the number of partitions for the dataset's batch size. Each partition
    needs at least one file.

    Raises:
      ConfigError: the policy is HINT, or it is FILE and the dataset reads no files or has an op
        whose result depends on several files.
    """
    policy = dataset.options().experimental_distribute.auto_shard_policy.name
    if policy in ("DATA", "OFF"):
        return ShardableGraph(serialize(dataset), policy)
    if policy == "HINT":
        raise ConfigError(
            "auto_shard_policy HINT works with the stock tf.data service endpoint only: set"
            " options.experimental_distribute.auto_shard_policy to FILE, DATA or OFF, or pass a"
            " dataset_fn that shards by its input context"
        )
    try:
        graph_def = prepare_file_sharding(dataset)
    except ConfigError:
        whole = serialize(dataset)
        op = file_splits.hides_reader(whole)
        if policy == "FILE":
            if op:
                raise ConfigError(_refusal(op)) from None
            raise
        warning = _dealt(op, False) if op else _UNSHARDABLE
        return ShardableGraph(whole, "DATA", None, (warning,))
    op, is_unknown = file_splits.obstacle(graph_def)
    if op and policy == "AUTO":
        return ShardableGraph(serialize(dataset), "DATA", None, (_dealt(op, is_unknown),))
    if op and not is_unknown:
        raise ConfigError(_refusal(op))
    warnings = (f"auto_shard_policy FILE: {_OWN_BATCHES.format(op=op)}",) if op else ()
    files = count_files(graph_def)
    partitions = partitions_of(analyze(graph_def).batches.size)
    if files is None or files >= partitions:
        return ShardableGraph(graph_def, "FILE", files, warnings)
    few = f"the dataset has {files} files for {partitions} partitions"
    if policy == "FILE":
        remedy = "write more files, or set auto_shard_policy to DATA"
        warnings = (*warnings, f"{few}: some get no rows; {remedy}")
        return ShardableGraph(graph_def, "FILE", files, warnings)
    return ShardableGraph(serialize(dataset), "DATA", None, (f"{few}: AUTO sharding goes by DATA",))


def _reason(op: str, is_unknown: bool) -> str:
    known = "may depend" if is_unknown else "depends"
    return f"what {op} returns {known} on rows of several files"


def _refusal(op: str) -> str:
    return (
        f"auto_shard_policy FILE, but {_reason(op, False)}: rows would be lost, repeated or paired"
        f" wrongly. Set auto_shard_policy to AUTO or DATA, or {_ENTRY_POINT}"
    )


def _dealt(op: str, is_unknown: bool) -> str:
    """Return the warning for a dataset that reads files and is not split by them."""
    remedy = _ENTRY_POINT[:1].upper() + _ENTRY_POINT[1:]
    if is_unknown:
        remedy = f"If it works on each row alone, set auto_shard_policy to FILE. {remedy}"
    return (
        f"{_reason(op, is_unknown)}: the dataset is not split by its files, but dealt to the splits"
        f" behind the last op, so each worker reads all files. {remedy}"
    )


def prepare_file_sharding(dataset: tf.data.Dataset) -> GraphDef:
    """Return the canonical graph with marked shard ops before its readers.

    Raises:
      ConfigError: TensorFlow finds no files to shard.
    """
    options = tf.data.Options()
    options.experimental_distribute.auto_shard_policy = tf.data.experimental.AutoShardPolicy.FILE
    try:
        # MultiWorkerMirroredStrategy uses this; it has no public name.
        auto_shard = distribute._AutoShardDataset  # noqa: SLF001
        rewritten = auto_shard(dataset.with_options(options), _NUM, _INDEX)
        graph_def = serialize(rewritten)
    except tf.errors.NotFoundError as error:
        raise ConfigError(
            "auto_shard_policy FILE, but no reader of files was found to shard: set"
            " options.experimental_distribute.auto_shard_policy to DATA or OFF"
        ) from error
    except tf.errors.OpError as error:
        raise DatasetFnError(f"the dataset cannot be sharded by files: {error.message}") from error
    nodes = node_defs.by_name(graph_def.node)
    for node in graph_def.node:
        if node.op == "ShardDataset" and node_defs.input_value(nodes, node, 1) == _NUM:
            node.attr[SHARD_MARK].b = True
            node.attr["require_non_empty"].b = False
    return graph_def


def shard(graph_def: GraphDef, policy: str, num_splits: int, split: int) -> GraphDef:
    """Return the graph of one split, as a new graph.

    The policy is FILE or DATA; OFF or "" for an unchanged graph.
    """
    out = node_defs.copy_of(graph_def)
    if policy == "DATA":
        _deal(out, num_splits, split)
    elif policy == "FILE":
        for node in list(out.node):
            if SHARD_MARK in node.attr:
                _set_shard(out, node, num_splits, split)
    elif policy not in ("OFF", ""):
        raise ConfigError(f"shard policy {policy!r}: use FILE, DATA or OFF")
    return out


def _deal(graph_def: GraphDef, num_splits: int, split: int) -> None:
    """Add a shard op that keeps some elements of the complete dataset, in place.

    Rows are batched again, so it comes before a batch at the end: it then deals rows, a step has
    the rows of one batch, and the splits of a worker can share a pass.
    """
    main = main_scope(graph_def)
    above, whole = node_defs.retval(graph_def), main.output
    for node in main.chain():
        if kind(node.op) in ("Batch", "ParallelBatch") and batches.PADDED_ROW not in node.attr:
            known = batches.batch_size(main, node), batches.drops_remainder(main, node)
            if known[0] is not None and known[1] is False:
                above, whole = node, main.input(node)
        if kind(node.op) not in PASSES:
            break
    shard_node = tf.compat.v1.NodeDef(name="split", op="ShardDataset")
    shard_node.input.extend([above.input[0], "", ""])
    for key in ("output_types", "output_shapes"):
        shard_node.attr[key].CopyFrom(output_attr(graph_def, whole, key))
    graph_def.node.append(shard_node)
    _set_shard(graph_def, graph_def.node[-1], num_splits, split)
    above.input[0] = shard_node.name


def _set_shard(graph_def: GraphDef, node: NodeDef, num_splits: int, split: int) -> None:
    node.input[1] = node_defs.add_const(graph_def.node, f"{node.name}/num", num_splits).name
    node.input[2] = node_defs.add_const(graph_def.node, f"{node.name}/index", split).name
    node.attr["require_non_empty"].b = False


def output_attr(graph_def: GraphDef, node: NodeDef, key: str) -> Any:
    """Return the types or shapes of a dataset's elements; some ops call them `Toutput_types`."""
    nodes = node_defs.by_name(graph_def.node)
    while True:
        for name in (key, "Toutput_types" if key == "output_types" else key):
            if name in node.attr:
                return node.attr[name]
        node = nodes[node_defs.source_of(node_defs.data_inputs(node)[0])]


def count_files(graph_def: GraphDef) -> int | None:
    """Count the files of a FILE-sharded graph: additional splits would be empty.

    The lowest count of the graph's readers. None if there are no marked shard ops or the number of
    files is not limited.
    """
    counts = [_count(graph_def, node) for node in graph_def.node if SHARD_MARK in node.attr]
    return min((count for count in counts if count is not None), default=None)


def count_before(graph_def: GraphDef, shards: Sequence[str]) -> int | None:
    """Return the number of elements before these shard ops: the largest one.

    Additional splits would be empty. Nothing is read. None if there are no shard ops, or if
    TensorFlow does not know one of the numbers.
    """
    nodes = node_defs.by_name(graph_def.node)
    counts = [int(input_of(graph_def, nodes[name]).cardinality()) for name in shards]
    return max(counts) if counts and min(counts) >= 0 else None


def _count(graph_def: GraphDef, node: NodeDef) -> int | None:
    names = input_of(graph_def, node)
    known = int(names.cardinality())
    if known >= 0:
        return known
    if known == tf.data.INFINITE_CARDINALITY:
        return None
    one_by_one = names.take(_COUNT_LIMIT)
    count = int(one_by_one.reduce(tf.constant(0, tf.int64), lambda total, *_: total + 1))
    return count if count < _COUNT_LIMIT else None


def input_of(graph_def: GraphDef, node: NodeDef) -> tf.data.Dataset:
    """Return the dataset that is the first input of a dataset op."""
    part = node_defs.copy_of(graph_def)
    node_defs.retval(part).input[0] = node.input[0]
    spec = _specs_of(part, node)
    return serialization.instantiate(canonicalize(part), spec[0] if len(spec) == 1 else spec)


def _specs_of(graph_def: GraphDef, node: NodeDef) -> tuple[tf.TensorSpec, ...]:
    types = output_attr(graph_def, node, "output_types").list.type
    shapes = output_attr(graph_def, node, "output_shapes").list.shape
    return tuple(
        tf.TensorSpec(tf.TensorShape(shape), tf.dtypes.as_dtype(dtype))
        for dtype, shape in zip(types, shapes, strict=True)
    )


class RecordShard(NamedTuple):
    """A split that keeps every n-th record of a source, and at most batches them afterwards.

    `source` is canonical, and equal in all splits. `spec` has the specs of a record's components,
    with all sizes.
    """

    source: GraphDef
    spec: tuple[tf.TensorSpec, ...]


def find_record_shard(
    graph_def: GraphDef, num_splits: int, split: int, batched: bool
) -> RecordShard | None:
    """Return the record shard of a split; None if it has none, or if its source cannot be shared.

    A source with a cache or with another shard may differ between splits. So may one with Python
    functions, which may use the number of the split or of the epoch. Records of different sizes
    cannot be dealt in batches. The graph has the seeds of an epoch.
    """
    main = main_scope(graph_def)
    name = analyze(graph_def).record_shard
    if not name or num_splits == 1 or _count_batches(main, name) != int(batched):
        return None
    node = main.nodes[name]
    if [main.value(node, index) for index in (1, 2)] != [num_splits, split]:
        return None
    before = node_defs.copy_of(graph_def)
    node_defs.retval(before).input[0] = node.input[0]
    source = canonicalize(before)
    if not {each.op for each in node_defs.all_nodes(source)}.isdisjoint(_MAY_DIFFER):
        return None
    spec = _specs_of(graph_def, node)
    is_fixed = all(one.shape.is_fully_defined() and one.dtype != tf.variant for one in spec)
    return RecordShard(source, spec) if is_fixed else None


def _count_batches(main: Scope, shard: str) -> int | None:
    """Return how many ops batch what the shard returns; None if an op does anything else."""
    count = 0
    for node in main.chain():
        if node.name == shard:
            return count
        is_batch = kind(node.op) in ("Batch", "ParallelBatch")
        if is_batch and batches.drops_remainder(main, node) is False:
            count += 1
        elif kind(node.op) not in PASSES:
            return None
    return None
