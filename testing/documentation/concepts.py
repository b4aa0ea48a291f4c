"""`python -m testing.documentation.concepts`: write the figures and tables of docs/concepts.md.

The example is computed with the functions that trainers use. docs/concepts.md has its numbers
between two comments, and its figures are in docs/concepts/.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from distributed_input.api.proto import types_pb2
from distributed_input.order import splits as assignment
from distributed_input.order.share import share_of
from testing.documentation.blocks import ROOT
from testing.documentation.drawing import Drawing

PAGE = ROOT / "docs" / "concepts.md"
FIGURES = PAGE.with_suffix("")

ROWS, SPLITS, PARTITIONS, TRAINERS, BATCH, SEED = 40, 4, 2, 2, 8, 0
STEPS_BEFORE = 3
"""Steps before the position of the example."""
JOB = types_pb2.Job(
    name="numbers", partitions=PARTITIONS, num_splits=SPLITS, global_batch_size=BATCH, seed=SEED
)
_COLORS = ("#bcd7f0", "#f6c9b8", "#c9e4bd", "#f2e3a6")
_GRAY, _LINE = "#dddddd", "#444444"
_CELL = 16
_LEFT = 112


@dataclass(frozen=True)
class Placed:
    """A row, and where the project's functions put it."""

    row: int
    split: int
    partition: int


def split_rows(split: int) -> list[int]:
    """Return what `Dataset.range(ROWS).shard(SPLITS, split)` has."""
    return list(range(split, ROWS, SPLITS))


def partition_rows(epoch: int) -> list[list[Placed]]:
    """Return the rows of each partition in an epoch, in order."""
    dealt = assignment.deal(SEED, epoch, SPLITS, PARTITIONS)
    return [
        [Placed(row, split, partition) for split in order for row in split_rows(split)]
        for partition, order in enumerate(dealt)
    ]


def steps(
    trainer: int, trainers: int = TRAINERS, epoch: int = 0, start: Mapping[int, int] | None = None
) -> list[list[Placed]]:
    """Return the rows that a trainer gets in each step of an epoch.

    Args:
        trainer: its index.
        trainers: number of trainers.
        epoch: the epoch.
        start: rows of each partition before the first step; None: 0.
    """
    share = share_of(JOB, trainer, trainers)
    rows, at = partition_rows(epoch), dict(start or dict.fromkeys(share.partitions, 0))
    found: list[list[Placed]] = []
    while True:
        taken: list[Placed] = []
        turns = assignment.batch_turns(share.partitions, share.batch, share.quota)
        got: int | None = None
        while True:
            try:
                partition, wanted = next(turns) if got is None else turns.send(got)
            except StopIteration:
                break
            part = rows[partition][at[partition] : at[partition] + wanted]
            got = len(part)
            at[partition] += got
            taken += part
        if not taken:
            return found
        found.append(taken)


def position(steps_read: int = STEPS_BEFORE) -> dict[int, int]:
    """Return the rows of each partition that all trainers have read after some steps."""
    found: dict[int, int] = {}
    for trainer in range(TRAINERS):
        share = share_of(JOB, trainer, TRAINERS)
        totals = {p: len(partition_rows(0)[p]) for p in share.partitions}
        base = dict.fromkeys(share.partitions, 0)
        found |= assignment.consumed_rows(base, totals, steps_read, share.batch, share.quota)
    return found


def tables() -> dict[str, str]:
    """Return the tables of the page by their names."""
    return {"splits": _splits_table(), "steps": _steps_table(), "rest": _rest_table()}


def with_tables(text: str) -> str:
    """Return the text of the page with its tables replaced."""
    for name, table in tables().items():
        start, end = f"<!-- {name} -->\n", f"<!-- end of {name} -->"
        between = re.compile(f"{re.escape(start)}.*?{re.escape(end)}", re.DOTALL)
        text, replaced = between.subn(f"{start}{table}{end}", text)
        assert replaced == 1, name
    return text


def figures() -> dict[str, str]:
    """Return the figures, as SVG, by the names of their files."""
    return {
        "processes.svg": _processes(),
        "rows.svg": _rows(),
        "position.svg": _position(),
        "stall.svg": _stall(),
    }


def _numbers(rows: Sequence[Placed]) -> str:
    return ", ".join(str(one.row) for one in rows)


def _table(header: Sequence[str], lines: Sequence[Sequence[object]]) -> str:
    cells = [header, ["---"] * len(header), *lines]
    return "".join(f"| {' | '.join(map(str, line))} |\n" for line in cells)


def _splits_table() -> str:
    dealt = {
        (epoch, split): f"partition {partition}, {'first' if place == 0 else 'second'}"
        for epoch in (0, 1)
        for partition, order in enumerate(assignment.deal(SEED, epoch, SPLITS, PARTITIONS))
        for place, split in enumerate(order)
    }
    lines = []
    for split in range(SPLITS):
        rows = split_rows(split)
        text = f"{', '.join(map(str, rows[:3]))}, … {rows[-1]}"
        lines.append([split, text, dealt[0, split], dealt[1, split]])
    return _table(["Split", "Its rows", "In epoch 0", "In epoch 1"], lines)


def _steps_table() -> str:
    columns = [steps(trainer) for trainer in range(TRAINERS)]
    lines = [
        [number, *map(_numbers, batches)]
        for number, batches in enumerate(zip(*columns, strict=True))
    ]
    return _table(["Step", *(f"Trainer {one}" for one in range(TRAINERS))], lines)


def _rest_table() -> str:
    rest = steps(0, 1, start=position())
    lines = [[STEPS_BEFORE + number, _numbers(batch)] for number, batch in enumerate(rest)]
    return _table(["Step", "The only trainer"], lines)


def _cell(drawing: Drawing, x: float, y: float, one: Placed, gray: bool = False) -> None:
    color = _GRAY if gray else _COLORS[one.split]
    drawing.box(x, y, _CELL * 2, 22, color, str(one.row), stroke="white")


def _rows() -> str:
    drawing = Drawing(
        770, 380, "40 rows are divided into 4 splits, 2 partitions and 5 steps of 2 trainers"
    )
    drawing.text(0, 28, "dataset", bold=True)
    for row in range(ROWS):
        color = _COLORS[row % SPLITS]
        drawing.box(_LEFT + row * _CELL, 14, _CELL, 22, color, str(row), stroke="white", size=9)
    for split in range(SPLITS):
        y = 62 + split * 27
        drawing.text(0, y + 15, f"split {split}", bold=True)
        for place, row in enumerate(split_rows(split)):
            _cell(drawing, _LEFT + place * _CELL * 2, y, Placed(row, split, 0))
    drawing.text(_LEFT + 345, 105, "dataset_fn makes each split.")
    drawing.text(_LEFT + 345, 123, "Any worker can compute any split.")
    top = 222
    drawing.text(0, top - 22, "epoch 0", bold=True)
    for partition, rows in enumerate(partition_rows(0)):
        y = top + 14 + partition * 54
        drawing.text(0, y + 10, f"partition {partition}", bold=True)
        drawing.text(0, y + 26, f"→ trainer {partition % TRAINERS}")
        for place, one in enumerate(rows):
            _cell(drawing, _LEFT + place * _CELL * 2, y + 3, one)
    _step_frames(drawing, top)
    return drawing.svg()


def _step_frames(drawing: Drawing, top: float, names: bool = True) -> None:
    quota = share_of(JOB, 0, TRAINERS).quota
    width = quota * _CELL * 2
    for step in range(ROWS // BATCH):
        x = _LEFT + step * width
        drawing.frame(x + 1, top, width - 2, 108)
        if names:
            drawing.text(x + width / 2, top + 126, f"step {step}", middle=True)


def _position() -> str:
    drawing = Drawing(770, 290, "A position after 3 steps, and the steps after a restore")
    top, gone = 26, position()
    for partition, rows in enumerate(partition_rows(0)):
        y = top + 14 + partition * 54
        drawing.text(0, y + 18, f"partition {partition}", bold=True)
        for place, one in enumerate(rows):
            _cell(drawing, _LEFT + place * _CELL * 2, y + 3, one, gray=place < gone[partition])
    _step_frames(drawing, top, names=False)
    x = _LEFT + gone[0] * _CELL * 2
    drawing.line(x, 18, x, 142, thick=True)
    drawing.text(x, 12, f"position: {gone[0]} rows of each partition", middle=True)
    drawing.text(_LEFT, 158, "gray: two trainers have read these rows")
    drawing.text(0, 202, "restored,", bold=True)
    drawing.text(0, 218, "one trainer", bold=True)
    for number, batch in enumerate(steps(0, 1, start=gone)):
        left = _LEFT + number * (BATCH * _CELL * 2 + 24)
        for place, one in enumerate(batch):
            _cell(drawing, left + place * _CELL * 2, 200, one)
        drawing.frame(left - 2, 195, BATCH * _CELL * 2 + 4, 32)
        middle = left + BATCH * _CELL
        drawing.text(middle, 246, f"step {STEPS_BEFORE + number}", middle=True)
    return drawing.svg(height=258)


def _processes() -> str:
    drawing = Drawing(770, 268, "Data flows from storage over workers and a sidecar to the trainer")
    drawing.frame(392, 74, 372, 190, dashed=True)
    drawing.text(404, 256, "the trainer's host, or its pod")
    drawing.box(255, 4, 260, 44, "#e8e8e8", "dispatcher: who is there, and how fast")
    drawing.box(2, 112, 82, 80, "#e8e8e8", "storage")
    for number, y in enumerate((92, 172)):
        drawing.box(140, y, 170, 62, _COLORS[2], "", size=12)
        drawing.text(225, y + 26, f"worker {number}", bold=True, middle=True)
        drawing.text(225, y + 44, "runs dataset_fn of splits", middle=True)
        drawing.arrow(84, 152, 138, y + 31)
        drawing.arrow(310, y + 31, 404, 166, thick=True)
        drawing.line(240, y, 300, 48, dashed=True) if number == 0 else None
    drawing.box(406, 92, 150, 142, _COLORS[0], "")
    drawing.text(481, 114, "sidecar", bold=True, middle=True)
    drawing.text(481, 132, "puts rows in order", middle=True)
    for place in range(6):
        color = "#4d7fae" if place > 1 else "white"
        drawing.box(421 + place * 20, 152, 18, 40, color, "", stroke=_LINE)
    drawing.text(481, 212, "buffer: shared memory", middle=True)
    drawing.arrow(556, 166, 608, 166, thick=True)
    drawing.box(610, 112, 142, 108, _COLORS[3], "")
    drawing.text(681, 140, "trainer", bold=True, middle=True)
    drawing.text(681, 162, "your program:", middle=True)
    drawing.text(681, 180, "one batch a step", middle=True)
    drawing.line(470, 92, 450, 48, dashed=True)
    return drawing.svg()


def _stall() -> str:
    drawing = Drawing(770, 196, "With fast workers the trainer never waits; with slow ones it does")
    for y, name, wait, level, note in (
        (18, "fast workers", 0, 6, "The buffer is full: no stall."),
        (112, "slow workers", 44, 0, "The buffer is empty: a stall of 40 %."),
    ):
        drawing.text(0, y + 20, name, bold=True)
        x, step = float(_LEFT), 66
        while x + step + wait <= _LEFT + 560:
            if wait:
                drawing.box(x, y, wait, 32, "white", "wait", stroke="#c0392b")
            drawing.box(x + wait, y, step, 32, _COLORS[3], "step", stroke="white")
            x += step + wait
        for place in range(6):
            color = "#4d7fae" if place < level else "white"
            drawing.box(_LEFT + place * 20, y + 42, 18, 18, color, "", stroke=_LINE)
        drawing.text(_LEFT + 132, y + 56, note)
    return drawing.svg()


def main() -> None:
    """Write the figures and the tables."""
    FIGURES.mkdir(exist_ok=True)
    for name, text in figures().items():
        (FIGURES / name).write_text(text, encoding="utf-8")
    PAGE.write_text(with_tables(PAGE.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
