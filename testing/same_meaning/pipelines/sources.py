"""The sources: datasets of tensors and files, readers, and datasets of other datasets."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from testing.same_meaning.pipelines import python_sources
from testing.same_meaning.pipelines.parts import SHARD, SOURCES, Draw, Part, Pipeline, text


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


SOURCES |= {
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
    "sharded_files": Part(0, _draw_names, _names(f"D.from_tensor_slices({{}}).shard({SHARD})")),
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
