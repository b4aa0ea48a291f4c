"""The grammar: sources and transformations of tf.data with random arguments, as text.

A pipeline is a value of JSON: `{"source": [name, *args], "ops": [[name, *args], ...]}`. An argument
may be another pipeline. `text` writes it as the Python expression that a user would write.

This module is long because it lists what tf.data offers.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from testing.same_meaning import python_sources

Pipeline = dict[str, Any]

_SHARD = "context.num_input_pipelines, context.input_pipeline_id"
_SEARCHING = ("filter", "unique", "resample", "group_sum", "group_by_window", "bucket", "skip")
RANDOM = (
    "shuffle",
    "sample",
    "choose_random",
    "resample",
    "resample_uneven",
    "noise",
    "seeded_noise",
    "list_files",
    "any_order",
    "apply",
)


class Draw:
    """Draws arguments. Each source gets numbers of its own, so that rows can be told apart."""

    def __init__(self, seed: str) -> None:
        self.dice = random.Random(seed)
        self._start = 1

    def numbers(self, count: int) -> tuple[int, int]:
        start = self._start
        self._start += 1000 * (count // 1000 + 1)
        return start, start + count

    def pick(self, *values: Any) -> Any:
        return self.dice.choice(values)

    def pipeline(self, depth: int, ops: int) -> Pipeline:
        """Draw a pipeline with at most this number of ops."""
        names = [name for name, one in SOURCES.items() for _ in range(one.weight)]
        if depth <= 0:
            names = [name for name in names if not SOURCES[name].nests]
        name = self.dice.choice(names)
        source = [name, *SOURCES[name].draw(self, depth)]
        made = [self.op(depth) for _ in range(self.dice.randint(0, ops))]
        pipeline = {"source": source, "ops": made}
        if "endless" in names_of(pipeline):  # an endless search for the next element hangs
            made[:] = [op for op in made if op[0] not in _SEARCHING]
        return pipeline

    def python(self) -> Pipeline:
        """Draw a Python source."""
        return {"source": ["python", *SOURCES["python"].draw(self, 0)], "ops": []}

    def op(self, depth: int) -> list[Any]:
        """Draw a transformation."""
        names = [name for name, one in OPS.items() for _ in range(one.weight)]
        name = self.dice.choice(names)
        if OPS[name].nests and depth <= 0:
            name = "map"
        return [name, *OPS[name].draw(self, depth)]


@dataclass(frozen=True)
class Part:
    """A source or a transformation.

    Attributes:
        weight: how often it is drawn; 0: only by other rules.
        draw: draws its arguments.
        text: Python text for its arguments.
        nests: it contains other pipelines.
    """

    weight: int
    draw: Callable[[Draw, int], list[Any]]
    text: Callable[..., str]
    nests: bool = False


def text(pipeline: Pipeline) -> str:
    """Return a pipeline as a Python expression."""
    name, *args = pipeline["source"]
    parts = [SOURCES[name].text(*args)]
    parts += [OPS[name].text(*args) for name, *args in pipeline["ops"]]
    return "".join(parts)


def nested(pipeline: Pipeline) -> Iterator[Pipeline]:
    """Yield a pipeline and those that it contains."""
    yield pipeline
    for part in (pipeline["source"], *pipeline["ops"]):
        for argument in part[1:]:
            for one in argument if isinstance(argument, list) else [argument]:
                if isinstance(one, dict):
                    yield from nested(one)


def names_of(pipeline: Pipeline) -> list[str]:
    """Return the names of all sources and transformations. A map counts as its function."""
    found = []
    for one in nested(pipeline):
        source = one["source"]
        found.append(source[1] if source[0] == "python" else source[0])
        found += [op[1] if op[0] == "map" else op[0] for op in one["ops"]]
    return found


def maps(pipeline: Pipeline) -> list[list[Any]]:
    """Return all maps with their arguments."""
    return [op for one in nested(pipeline) for op in one["ops"] if op[0] == "map"]


CHOOSING = ("sample", "choose_random")
"""Sources that choose one of several datasets by random numbers."""


def chooses(pipeline: Pipeline) -> bool:
    """Return whether elements are chosen by random numbers, and not only shuffled."""
    return any(name in (*CHOOSING, "resample_uneven") for name in names_of(pipeline))


def is_sharded_inside(pipeline: Pipeline) -> bool:
    """Return whether the source, or each dataset in it, is a split's own."""
    source = pipeline["source"]
    if not SOURCES[source[0]].nests:
        return bool(source[0] == "sharded_files")
    return all(any(op[0] == "shard" for op in one["ops"]) for one in source[1])


def is_random(pipeline: Pipeline) -> bool:
    """Return whether two runs of a pipeline may differ."""
    free = any(op[2] and op[3] is False for op in maps(pipeline))
    return free or any(name in RANDOM for name in names_of(pipeline))


# Sources.


def _count(draw: Draw) -> int:
    return int(draw.pick(0, 1, 3, 7, 12, 20, 33, 40, 64))


def _range(name: str) -> Part:
    def one(draw: Draw, _: int) -> list[Any]:
        return list(draw.numbers(_count(draw) or 5))

    return Part(2, one, lambda a, b: f"D.from_tensor_slices(f.{name}({a}, {b}))")


def _lengths(draw: Draw) -> list[int]:
    count = draw.pick(1, 2, 3, 4, 8)
    if draw.dice.random() < 0.3:
        return [int(draw.pick(5, 10))] * count
    return [int(draw.pick(0, 1, 2, 3, 5, 8, 13, 20)) for _ in range(count)]


def _draw_files(draw: Draw, _: int) -> list[Any]:
    lengths = _lengths(draw)
    return [lengths, draw.numbers(sum(lengths))[0], draw.pick(None, None, 1, 2)]


def _parallel(value: int | None) -> str:
    return "" if value is None else f", num_parallel_reads={value}"


def _files(kind: str, lengths: list[int], start: int) -> str:
    return f"f.{kind}_files({lengths}, {start})"


def _reader(opened: str, kind: str, more: str = "") -> Part:
    return Part(
        3,
        _draw_files,
        lambda lengths, start, n: f"{opened}({_files(kind, lengths, start)}{more}{_parallel(n)})",
    )


def _draw_names(draw: Draw, _: int) -> list[Any]:
    lengths = _lengths(draw)
    function = draw.pick("read_text", "read_text", "read_batches")
    return [lengths, draw.numbers(sum(lengths))[0], draw.pick(1, 2, 3), draw.pick(1, 2), function]


def _names(listing: str, method: str = "interleave") -> Callable[..., str]:
    def one(lengths: list[int], start: int, cycle: int, block: int, function: str) -> str:
        names = listing.format(_files("text", lengths, start))
        if method == "flat_map":
            return f"{names}.flat_map(f.{function})"
        return f"{names}.interleave(f.{function}, cycle_length={cycle}, block_length={block})"

    return one


def _draw_two(draw: Draw, depth: int) -> list[Any]:
    first = draw.pipeline(depth - 1, 2)
    if draw.dice.random() < 0.6:  # the same elements, so that the two fit together
        second = {"source": _renumbered(draw, first["source"]), "ops": list(first["ops"])}
        return [[first, second]]
    return [[first, draw.pipeline(depth - 1, 2)]]


def _renumbered(draw: Draw, source: list[Any]) -> list[Any]:
    return (
        [source[0], *SOURCES[source[0]].draw(draw, 0)] if not SOURCES[source[0]].nests else source
    )


def _texts(pipelines: list[Pipeline]) -> str:
    return ", ".join(text(one) for one in pipelines)


def _sample(pipelines: list[Pipeline], weights: list[float], seed: int | None, stop: bool) -> str:
    return (
        f"D.sample_from_datasets([{_texts(pipelines)}], weights={weights}, seed={seed}, "
        f"stop_on_empty_dataset={stop})"
    )


def _choose(pipelines: list[Pipeline], pattern: list[int], repeats: int | None, stop: bool) -> str:
    return (
        f"D.choose_from_datasets([{_texts(pipelines)}], f.selector({pattern}, {repeats}), "
        f"stop_on_empty_dataset={stop})"
    )


def _choose_random(pipelines: list[Pipeline], seed: int | None) -> str:
    return f"D.choose_from_datasets([{_texts(pipelines)}], f.random_selector({seed}))"


PYTHON = [one.__name__ for one in (*python_sources.STEADY, *python_sources.CHANGING)]
"""Names of the Python sources, which only an entry point may have."""


def _python(name: str, start: int, stop: int) -> str:
    more = ", GLOBAL_BATCH" if name == "batches" else ""
    return f"p.{name}(context, {start}, {stop}{more})"


SOURCES: dict[str, Part] = {
    "range": Part(
        6, lambda draw, _: list(draw.numbers(_count(draw))), lambda a, b: f"D.range({a}, {b})"
    ),
    "ids": _range("ids"),
    "records": _range("records"),
    "ragged": _range("ragged"),
    "sparse": _range("sparse"),
    "tensors": Part(
        1, lambda draw, _: list(draw.numbers(6)), lambda a, b: f"D.from_tensors(f.ids({a}, {b}))"
    ),
    "text": _reader("tf.data.TextLineDataset", "text"),
    "tfrecord": _reader("tf.data.TFRecordDataset", "tfrecord"),
    "fixed": Part(
        2,
        _draw_files,
        lambda lengths, start, _: (
            f"tf.data.FixedLengthRecordDataset({_files('fixed', lengths, start)}, f.RECORD_BYTES)"
        ),
    ),
    "list_files": Part(2, _draw_names, _names("D.list_files(f.pattern({}))")),
    "sorted_files": Part(2, _draw_names, _names("D.list_files(f.pattern({}), shuffle=False)")),
    "file_names": Part(2, _draw_names, _names("D.from_tensor_slices({})", "flat_map")),
    "sharded_files": Part(0, _draw_names, _names(f"D.from_tensor_slices({{}}).shard({_SHARD})")),
    "python": Part(
        0,
        lambda draw, _: [draw.pick(*PYTHON), *draw.numbers(int(draw.pick(0, 1, 9, 40, 100)))],
        _python,
    ),
    "zip": Part(3, _draw_two, lambda two: f"D.zip(({_texts(two)}))", nests=True),
    "sample": Part(
        2,
        lambda draw, depth: [
            *_draw_two(draw, depth),
            draw.pick([0.5, 0.5], [0.8, 0.2]),
            draw.pick(None, 1, 7),
            draw.pick(True, False),
        ],
        _sample,
        nests=True,
    ),
    "choose_random": Part(
        1,
        lambda draw, depth: [*_draw_two(draw, depth), draw.pick(None, 7)],
        _choose_random,
        nests=True,
    ),
    "one_after_another": Part(
        0, _draw_two, lambda two: f"{text(two[0])}.concatenate({text(two[1])})", nests=True
    ),
    "choose": Part(
        2,
        lambda draw, depth: [
            *_draw_two(draw, depth),
            draw.pick([0, 1], [0, 0, 1], [1, 0, 0, 0]),
            draw.pick(None, 5, 20),
            draw.pick(True, True, False),
        ],
        _choose,
        nests=True,
    ),
}


# Transformations.

_MAPS = (
    "add add parse as_dict as_text half wide matrix with_none vector only_vector table unranked "
    "with_ragged with_sparse noise noise seeded_noise"
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
OPS: dict[str, Part] = {
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
    "shard": Part(0, _none, lambda: f".shard({_SHARD})"),
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

ROW_KEEPING = (
    "shuffle repeat endless take skip prefetch cache policy any_order unique take_while shard "
    "user_shard filter snapshot concatenate_same apply"
).split()
"""Transformations that pass elements on unchanged, so that a batch before them stays one."""
ORDER_DEPENDENT = (
    "take skip enumerate window batch padded_batch ragged_batch rebatch replica_batch "
    "replica_padded replica_ragged scan unique group_by_window group_sum bucket resample "
    "take_while zip zip_with concatenate_same sample choose shard sharded_files user_shard "
    "slices spread"
).split()
"""What makes elements depend on which others come before them."""
COUNT_BY_VALUE = (
    "filter take_while unique group_by_window group_sum bucket resample resample_uneven spread "
    "slices ignore_errors choose_random sample choose zip zip_with"
).split()
"""What makes the number of elements depend on which elements come, or in which order."""
BATCHES = "batch padded_batch ragged_batch replica_batch replica_padded replica_ragged".split()


def is_batched(pipeline: Pipeline) -> bool | None:
    """Return whether the elements are certainly batches of rows, or certainly rows; else None."""
    ops = pipeline["ops"]
    if pipeline["source"][0] == "python":
        return bool(pipeline["source"][1] == "batches")
    for name, *_ in reversed(ops):
        if name in BATCHES:
            return True
        if name not in ROW_KEEPING:
            break
    else:
        simple = pipeline["source"][0] in ("range", "ids", "text", "tfrecord", "fixed", "records")
        return False if simple else None
    dividing = ("batch", "rebatch", "group", "bucket", "concatenate", "zip_with")
    sources = ("range", "ids", "text", "tfrecord", "fixed", "records")
    if any(name.partition("_")[0] in dividing or name in (*BATCHES, *dividing) for name, *_ in ops):
        return None
    return False if pipeline["source"][0] in sources else None
