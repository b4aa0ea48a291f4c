"""The transformations of tf.data, with random arguments."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testing.same_meaning.pipelines.parts import OPS, SHARD, Draw, Part, text

_MAPS = (
    "add add parse as_dict as_text total half wide matrix with_none vector only_vector table "
    "unranked with_ragged with_sparse noise noise seeded_noise"
).split()


def _none(_: Draw, __: int) -> list[Any]:
    return []


def _choices(*values: tuple[Any, ...]) -> Callable[[Draw, int], list[Any]]:
    return lambda draw, _: [draw.pick(*ones) for ones in values]


def _map(function: str, calls: int | None, deterministic: bool | None) -> str:
    more = f", num_parallel_calls={calls}" if calls else ""
    more += f", deterministic={deterministic}" if calls and deterministic is not None else ""
    return f".map(f.{function}{more})"


def _batch(method: str) -> Callable[..., str]:
    return lambda size, drop: f".{method}({size}{', drop_remainder=True' if drop else ''})"


def _shuffle(size: int, seed: int | None, again: bool | None) -> str:
    more = "" if seed is None else f", seed={seed}"
    more += "" if again is None else f", reshuffle_each_iteration={again}"
    return f".shuffle({size}{more})"


def _window(size: int, shift: int, drop: bool) -> str:
    return (
        f".window({size}, shift={shift}, drop_remainder={drop}).flat_map(f.joined({size}, {drop}))"
    )


def _group(size: int) -> str:
    return f".group_by_window(f.key, f.batch_of({size}), window_size={size})"


def _bucket(size: int, drop: bool) -> str:
    return (
        f".bucket_by_sequence_length(f.length, [2, 4], [{size}, {size}, {size}], "
        f"drop_remainder={drop})"
    )


def _resample(classes: str) -> Callable[..., str]:
    return lambda seed: f".rejection_resample(f.{classes}, [0.5, 0.5], seed={seed})"


_SIZES = (1, 2, 3, 4, 4, 8, 8, 8, 16)
OPS |= {
    "map": Part(22, _choices(tuple(_MAPS), (None, None, 2, -1), (None, None, True, False)), _map),
    "filter": Part(4, _choices(("keep", "keep", "keep_few")), lambda name: f".filter(f.{name})"),
    "batch": Part(9, _choices(_SIZES, (False, False, False, True)), _batch("batch")),
    "padded_batch": Part(3, _choices(_SIZES, (False, True)), _batch("padded_batch")),
    "ragged_batch": Part(2, _choices(_SIZES, (False, True)), _batch("ragged_batch")),
    "rebatch": Part(2, _choices((2, 4, 8, [1, 3], 16), (False, True)), _batch("rebatch")),
    "unbatch": Part(2, _none, lambda: ".unbatch()"),
    "shuffle": Part(
        9, _choices((1, 5, 16, 100, 1000), (None, None, 3), (None, None, True, False)), _shuffle
    ),
    "repeat": Part(4, _choices((1, 2, 2)), lambda count: f".repeat({count})"),
    "endless": Part(2, _none, lambda: ".repeat()"),
    "take": Part(4, _choices((0, 1, 5, 17, 40, -1)), lambda count: f".take({count})"),
    "skip": Part(3, _choices((0, 1, 4, 11, 50)), lambda count: f".skip({count})"),
    "enumerate": Part(2, _none, lambda: ".enumerate()"),
    "window": Part(3, _choices((1, 2, 3, 5), (1, 2, 3), (True, False)), _window),
    "twice": Part(1, _none, lambda: ".flat_map(f.twice)"),
    "spread": Part(
        2,
        _choices((1, 2, 4), (None, 2)),
        lambda cycle, calls: (
            f".interleave(f.spread, cycle_length={cycle}, num_parallel_calls={calls})"
        ),
    ),
    "slices": Part(1, _none, lambda: ".flat_map(f.slices)"),
    "cache": Part(2, _none, lambda: ".cache()"),
    "scan": Part(2, _none, lambda: ".scan(tf.zeros([], tf.int64), f.running)"),
    "unique": Part(2, _none, lambda: ".unique()"),
    "group_by_window": Part(2, _choices((2, 4, 8)), _group),
    "group_sum": Part(
        1,
        _choices((2, 5)),
        lambda size: f".group_by_window(f.key, f.group_sum, window_size={size})",
    ),
    "bucket": Part(2, _choices((2, 4), (False, True)), _bucket),
    "prefetch": Part(2, _choices((1, 2, -1)), lambda size: f".prefetch({size})"),
    "resample": Part(1, _choices((None, 5)), _resample("parity")),
    "resample_uneven": Part(0, _choices((None, 5)), _resample("uneven")),
    "take_while": Part(2, _choices((5, 30, 2000)), lambda limit: f".take_while(f.below({limit}))"),
    "fail": Part(1, _none, lambda: ".map(f.fail_some)"),
    "ignore_errors": Part(1, _none, lambda: ".map(f.fail_some).ignore_errors()"),
    "apply": Part(1, _none, lambda: ".apply(f.shuffled_unseeded)"),
    "user_shard": Part(1, _choices((2, 3), (0, 1)), lambda n, i: f".shard({n}, {i})"),
    "policy": Part(
        2,
        _choices(("DATA", "DATA", "OFF", "FILE", "AUTO")),
        lambda name: f".with_options(f.options({name!r}))",
    ),
    "any_order": Part(1, _none, lambda: ".with_options(f.options(deterministic=False))"),
    "snapshot": Part(
        1,
        lambda draw, _: [f"snapshot-{draw.dice.getrandbits(40):x}"],
        lambda n: f".snapshot(f.new_path({n!r}))",
    ),
    "zip_with": Part(
        2,
        lambda draw, depth: [draw.pipeline(depth - 1, 1)],
        lambda other: f".apply(lambda ds: D.zip((ds, {text(other)})))",
        nests=True,
    ),
    "concatenate": Part(
        2,
        lambda draw, depth: [draw.pipeline(depth - 1, 1)],
        lambda other: f".concatenate({text(other)})",
        nests=True,
    ),
    "concatenate_same": Part(
        2,
        lambda draw, _: [draw.pick(1, 3)],
        lambda count: f".apply(lambda ds: ds.concatenate(ds.take({count})))",
    ),
    "shard": Part(0, _none, lambda: f".shard({SHARD})"),
    "replica_batch": Part(
        0, _none, lambda: ".batch(context.get_per_replica_batch_size(GLOBAL_BATCH))"
    ),
    "replica_padded": Part(
        0, _none, lambda: ".padded_batch(context.get_per_replica_batch_size(GLOBAL_BATCH))"
    ),
    "replica_ragged": Part(
        0, _none, lambda: ".ragged_batch(context.get_per_replica_batch_size(GLOBAL_BATCH))"
    ),
}
