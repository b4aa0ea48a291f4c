"""The seeds of an epoch for the random ops of a graph.

The new seeds of a random op are a hash of the job's seed, the epoch and the op's own seeds, so ops
with equal seeds stay equal. An unseeded op uses its place in the graph instead of its own seeds.
Before a selection such as `shard`, all splits get the same seeds: otherwise a shuffle there would
repeat some rows and drop others. After it, the seeds also depend on the split: otherwise all splits
would shuffle alike. See `selections`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import tensorflow as tf

from distributed_input.tfdata.graph import caches, node_defs
from distributed_input.tfdata.graph.node_defs import GraphDef, NodeDef
from distributed_input.tfdata.graph.random_ops import (
    attr_seeds,
    has_seed_attrs,
    input_seeds,
    is_unseeded,
    seed_inputs,
)
from distributed_input.tfdata.random import selections
from distributed_input.tfdata.random.function_bodies import number_pair
from distributed_input.tfdata.random.generators import rekey

_NONE: frozenset[str] = frozenset()


def reseed(
    graph_def: GraphDef,
    seed: int,
    epoch: int,
    split: int,
    own: selections.OwnOps | None = None,
) -> GraphDef:
    """Return the graph with the seeds of one epoch.

    Args:
      graph_def: a canonical graph, already sharded.
      seed: the seed of the job.
      epoch: the index of the epoch, from 0.
      split: the index of the split.
      own: the ops whose seeds depend on the split; see `selections.find`. None: those of a dataset
        that is not sharded.

    Returns:
      A new graph, equal in every process for equal arguments. Shuffles with
      reshuffle_each_iteration=False, and everything before a cache to files, are the same in all
      epochs.
    """
    out = node_defs.copy_of(graph_def)
    own = selections.find(out, 1, split, ()) if own is None else own
    seeder = _Seeder(seed, epoch, split)
    cached_nodes, cached = caches.before_caches(out)
    seeder.scope(out.node, "", own.nodes.get("", _NONE), cached_nodes)
    for function in out.library.function:
        name = function.signature.name
        fixed = frozenset(node.name for node in function.node_def if name in cached)
        seeder.scope(function.node_def, ":output:0", own.nodes.get(name, _NONE), fixed)

    def key(state: list[int], users: frozenset[str]) -> int:
        return seeder.key(state, not users <= own.functions, not users & cached)

    rekey(out, key)
    return out


class _Seeder:
    """Seeds the random ops of a graph, and counts the unseeded ones."""

    def __init__(self, seed: int, epoch: int, split: int) -> None:
        self._seed, self._epoch, self._split = seed, epoch, split
        self._ordinal = 0

    def scope(self, nodes: Any, output: str, own: frozenset[str], fixed: frozenset[str]) -> None:
        """Seed the random ops of the graph, or of one function.

        Args:
          nodes: a repeated NodeDef field; constants are added to it.
          output: the suffix of a node's name in an input.
          own: nodes whose seeds depend on the split.
          fixed: nodes that are the same in all epochs.
        """
        named = node_defs.by_name(nodes)
        for node in list(nodes):
            if has_seed_attrs(node.op):
                place = self._place() if is_unseeded(named, node) else ""
                with_epoch, is_shared = node.name not in fixed, node.name not in own
                first, second = self._hash(with_epoch, attr_seeds(node), place, is_shared)
                node.attr["seed"].i, node.attr["seed2"].i = first, second
            elif seed_inputs(node.op) is not None:
                in_all = node.name not in own, node.name in fixed
                self._seed_inputs(named, nodes, node, output, *in_all)

    def _seed_inputs(
        self,
        named: dict[str, NodeDef],
        nodes: Any,
        node: NodeDef,
        output: str,
        is_shared: bool,
        fixed: bool,
    ) -> None:
        old = input_seeds(named, node)
        own = ""
        if old == (0, 0):
            own = self._place(named, node) if not output else self._place()
        with_epoch = not fixed and (
            "reshuffle_each_iteration" not in node.attr or node.attr["reshuffle_each_iteration"].b
        )
        new = self._hash(with_epoch, old, own, is_shared)
        where = seed_inputs(node.op)
        assert where is not None
        for number, (index, value) in enumerate(zip(where, new, strict=True)):
            const = node_defs.add_const(nodes, f"{node.name}/seed{number}", value)
            name = const.name + output
            if old[number] is None:  # computed at run time
                name = _add_xor(nodes, node.input[index], name) + (output and ":z:0")
            node.input[index] = name

    def _place(self, named: dict[str, NodeDef] | None = None, node: NodeDef | None = None) -> str:
        """Return a name that stands for the seeds of an unseeded op.

        It is the name of its seed generator or of its dataset object, because two nodes may be one
        object. Otherwise it is the op's number.
        """
        self._ordinal += 1
        if named is not None and node is not None:
            for name in node.input:
                handle = named.get(node_defs.source_of(name))
                if handle is not None and handle.op == "Const":
                    for value in handle.attr["value"].tensor.resource_handle_val:
                        return f"handle:{value.name}"
            if "metadata" in node.attr and node.attr["metadata"].s:
                return f"dataset:{node.attr['metadata'].s!r}"
        return f"op:{self._ordinal}"

    def key(self, state: list[int], is_shared: bool, with_epoch: bool) -> int:
        """Return a key for a generator that keeps its state in a variable."""
        return self._hash(with_epoch, state, "", is_shared)[0]

    def _hash(
        self, with_epoch: bool, old: Iterable[Any], place: str, is_shared: bool
    ) -> tuple[int, int]:
        """Return two positive seeds of 62 bits."""
        epoch = self._epoch if with_epoch else None
        split = None if is_shared else self._split
        first, second = number_pair(self._seed, epoch, tuple(old), place, split)
        return first | 1, second


def _add_xor(nodes: Any, left: str, right: str) -> str:
    name = f"{node_defs.source_of(right)}/mixed"
    node = tf.compat.v1.NodeDef(name=name, op="BitwiseXor", input=[left, right])
    node.attr["T"].type = tf.int64.as_datatype_enum
    nodes.append(node)
    return name
