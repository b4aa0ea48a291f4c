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

from distributed_input.graph.definition import caches, node_defs
from distributed_input.graph.definition.node_defs import GraphDef
from distributed_input.graph.definition.random_ops import (
    attr_seeds,
    has_seed_attrs,
    input_seeds,
    is_unseeded,
    objects_of,
    seed_inputs,
)
from distributed_input.graph.random import selections
from distributed_input.graph.random.function_bodies import number_pair
from distributed_input.graph.random.generators import rekey

_NONE: frozenset[str] = frozenset()


def reseed(
    graph_def: GraphDef,
    seed: int,
    epoch: int,
    split: int,
    own: selections.OwnOps | None = None,
) -> GraphDef:
    """Return the graph with the seeds of one epoch.

    The graph is canonical and already sharded. `own` has the ops whose seeds depend on the split;
    None: those of a dataset that is not sharded. The result is equal in every process for equal
    arguments. Shuffles with reshuffle_each_iteration=False, and everything before a cache to files,
    are the same in all epochs.
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
        return seeder.seeds(state, "", users <= own.functions, bool(users & cached))[0]

    rekey(out, key)
    return out


class _Seeder:
    """Seeds the random ops of a graph, and counts the unseeded ones."""

    def __init__(self, seed: int, epoch: int, split: int) -> None:
        self._seed, self._epoch, self._split = seed, epoch, split
        self._ordinal = 0

    def scope(self, nodes: Any, output: str, own: frozenset[str], fixed: frozenset[str]) -> None:
        """Seed the random ops of the graph, or of one function.

        `output` is the suffix of a node's name in an input. The seeds of `own` nodes depend on the
        split, and `fixed` nodes are the same in all epochs.
        """
        named = node_defs.by_name(nodes)
        for node in list(nodes):
            is_own, is_fixed = node.name in own, node.name in fixed
            if has_seed_attrs(node.op):
                place = self._place() if is_unseeded(named, node) else ""
                new = self.seeds(attr_seeds(node), place, is_own, is_fixed)
                node.attr["seed"].i, node.attr["seed2"].i = new
            elif (where := seed_inputs(node.op)) is not None:
                old = input_seeds(named, node)
                objects = () if output else objects_of(named, node)
                place = self._place(objects) if old == (0, 0) else ""
                reshuffles = node.attr.get("reshuffle_each_iteration")
                is_fixed = is_fixed or (reshuffles is not None and not reshuffles.b)
                new = self.seeds(old, place, is_own, is_fixed)
                for number, index in enumerate(where):
                    name = f"{node.name}/seed{number}"
                    name = node_defs.add_const(nodes, name, new[number]).name + output
                    if old[number] is None:  # computed at run time
                        name = _add_xor(nodes, node.input[index], name) + (output and ":z:0")
                    node.input[index] = name

    def _place(self, objects: Iterable[str] = ()) -> str:
        """Return a name that stands for the seeds of an unseeded op.

        It is the name of its seed generator or of its dataset object, because two nodes may be one
        object. Otherwise it is the op's number.
        """
        self._ordinal += 1
        return next(iter(objects), f"op:{self._ordinal}")

    def seeds(
        self, old: Iterable[Any], place: str, is_own: bool, is_fixed: bool
    ) -> tuple[int, int]:
        """Return two positive seeds of 62 bits.

        `old` has the seeds of the op, or the state of a generator. `place` is "" if the op has
        seeds.
        """
        epoch = None if is_fixed else self._epoch
        split = self._split if is_own else None
        first, second = number_pair(self._seed, epoch, tuple(old), place, split)
        return first | 1, second


def _add_xor(nodes: Any, left: str, right: str) -> str:
    name = f"{node_defs.source_of(right)}/mixed"
    node = tf.compat.v1.NodeDef(name=name, op="BitwiseXor", input=[left, right])
    node.attr["T"].type = tf.int64.as_datatype_enum
    nodes.append(node)
    return name
