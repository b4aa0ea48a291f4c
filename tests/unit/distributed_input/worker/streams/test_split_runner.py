"""Splits that run from their first row, continue from a saved state, or skip rows.

This module is long because all tests use one fake split.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import DatasetFnError, UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.link.blocks.open_streams import StreamCounters
from distributed_input.rows.blocks import BLOCK_BYTES, RowBlock
from distributed_input.rows.prefix import Prefix
from distributed_input.worker.datasets.boundary_files import BoundaryError
from distributed_input.worker.datasets.split_iterator import SplitIterator
from distributed_input.worker.states import split_states, state_saver
from distributed_input.worker.states.saved_state import KEY_BYTES, StateError, decode, encode
from distributed_input.worker.states.split_states import SplitStates
from distributed_input.worker.states.state_files import StateFiles
from distributed_input.worker.streams import batch_sizer, split_runner
from distributed_input.worker.streams.batch_sizer import BatchSizer, MeasuredSplit
from distributed_input.worker.streams.split_runner import SplitRunner
from tests.unit.distributed_input.worker.streams.blockcases import ROW, rows_in

ROWS = 40
KEY = b"k" * KEY_BYTES


@pytest.fixture(autouse=True)
def _states_at_every_element(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_saver, "MIN_REPLAY_SECONDS", 0.0)
    monkeypatch.setattr(state_saver, "_MAX_SHARE", float("inf"))
    monkeypatch.setattr(split_states, "is_checked", lambda request: False)
    monkeypatch.setattr(batch_sizer, "_ELEMENT_SECONDS", 0.0)


class Elements:
    """Batches of rows that contain their index plus `shift`. The state is the next row."""

    def __init__(self, splits: Splits, batch: int) -> None:
        self._splits, self._batch, self._row = splits, batch, 0
        self.fetched = self.skipped = 0
        self.key = splits.key
        self.problem, self.inline = "", False

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        if self._row >= self._splits.rows:
            raise StopIteration
        if self._row in self._splits.broken:
            self._splits.broken.clear()
            raise OSError("the disk is gone")
        rows = np.arange(self._row, min(self._splits.rows, self._row + self._batch))
        self._row += self._batch
        self.fetched += 1
        self._splits.produced += len(rows)
        return {"id": rows + self._splits.shift}

    def save(self, _max_bytes: int, _timeout: float) -> bytes:
        return b"%d" % self._row

    def restore(self, data: bytes) -> None:
        if self._splits.refuses:
            raise StateError("TensorFlow cannot restore it")
        self._row = int(data)

    def skip(self, rows: int) -> None:
        self._row = self.skipped = rows


@dataclass
class Splits:
    """A fake `SplitOpener`. Rows in `broken` cannot be read the first time.

    Rows can be skipped if their number is a multiple of `skips`; 0: they cannot be skipped.
    """

    key: bytes = KEY
    rows: int = ROWS
    shift: int = 0
    refuses: bool = False
    skips: int = 0
    broken: set[int] = field(default_factory=set)
    produced: int = 0
    calls: int = 0
    opened: list[int] = field(default_factory=list)
    may_inline: bool = False
    inline: list[bool] = field(default_factory=list)

    def open(
        self,
        _job: Any,
        _seed: int,
        _epoch: int,
        _split: int,
        batch: int,
        most: int,
        inline: Callable[[], bool],
        _guards: Any = None,
        may_write: bool = False,
    ) -> SplitIterator:
        self.opened.append(batch)
        self.inline.append(inline())
        elements: Any = Elements(self, batch)
        skipped = most - most % self.skips if self.skips else 0
        if skipped and self.refuses:
            raise OSError("the graph cannot be changed")
        elements.skip(skipped)
        state = None if skipped else elements
        may_inline = self.may_inline and not self.inline[-1]
        return SplitIterator(
            elements, ROW, True, state, self.calls, skipped=skipped, may_inline=may_inline
        )


@dataclass
class GuardedSplits(Splits):
    """A fake `SplitOpener` that notes the guards with which a split was opened."""

    guards: list[Any] = field(default_factory=list)

    def open(self, *of: Any, **others: Any) -> SplitIterator:
        self.guards.append(of[7])
        return super().open(*of, **others)


def request_of(start: int = 0, token: bytes = b"", **fields: Any) -> worker_pb2.StreamRequest:
    job = types_pb2.Job(
        name="train", dataset_id="d", row_spec=ROW.to_json(), global_batch_size=4, partitions=1
    )
    return worker_pb2.StreamRequest(job=job, start_row=start, resume_token=token, **fields)


def run(splits: Any, request: worker_pb2.StreamRequest) -> tuple[list[RowBlock], SplitStates]:
    states = SplitStates()
    return list(SplitRunner(splits, states).blocks(request, StreamCounters())), states


def received(found: list[RowBlock]) -> list[RowBlock]:
    """Return the blocks with rows, and the last block."""
    return [block for block in found if not (block.resume_token or block.replayed)]


def whole() -> tuple[list[Prefix], list[bytes]]:
    """Return all prefixes of the split, and the states that are saved while it runs."""
    found, _ = run(Splits(), request_of())
    prefixes = [Prefix()]
    for block in received(found):
        for digest in block.digests:
            prefixes.append(prefixes[-1].extend(np.array([digest], np.uint64)))
    return prefixes, [block.resume_token for block in found if block.resume_token]


PREFIXES: list[Prefix] = []
TOKENS: list[bytes] = []


@pytest.fixture(autouse=True)
def _run_once(_states_at_every_element: None) -> None:
    if not TOKENS:
        prefixes, tokens = whole()
        PREFIXES.extend(prefixes)
        TOKENS.extend(tokens)


def checked(row: int) -> dict[str, Any]:
    known = PREFIXES[row]
    return {"prefix_rows": row, "prefix_digest": known.digest, "check_prefix": row > 0}


def test_states_are_sent_after_the_rows_before_them() -> None:
    found, states = run(Splits(), request_of())
    row, count = 0, 0
    for block in found:
        if block.resume_token:
            state = decode(block.resume_token)
            assert state.prefix == PREFIXES[state.prefix.rows]
            assert 0 < state.prefix.rows <= row
            count += 1
        row = block.end_row if not block.resume_token else row
    assert count > 1
    assert states.counts["saved"] >= count
    assert rows_in(received(found)) == list(range(ROWS))


@given(st.data())
def test_a_restored_split_has_the_same_rows_as_a_replayed_one(data: st.DataObject) -> None:
    token = data.draw(st.sampled_from(TOKENS))
    at = decode(token).prefix.rows
    is_checked = data.draw(st.booleans())
    start = data.draw(st.integers(at + is_checked, ROWS))
    fields = checked(start) if is_checked else {}
    splits = Splits()
    found, states = run(splits, request_of(start, token, **fields))
    blocks = received(found)
    assert rows_in(blocks) == list(range(start, ROWS))
    assert splits.produced == ROWS - at
    assert states.counts["restored"] == 1
    assert blocks[0].prefix_digest == PREFIXES[start].digest
    assert not blocks[0].prefix_differs
    assert blocks[-1].last


def test_only_rows_that_are_produced_again_count_as_replayed() -> None:
    counters = StreamCounters()
    at = decode(TOKENS[0]).prefix.rows
    splits: Any = Splits()
    list(SplitRunner(splits, SplitStates()).blocks(request_of(at + 3, TOKENS[0]), counters))
    assert counters.replayed_rows == 3


def test_the_use_of_a_state_is_reported_before_it_is_restored() -> None:
    splits: Any = Splits()
    blocks = SplitRunner(splits, SplitStates()).blocks(
        request_of(ROWS, TOKENS[0]), StreamCounters()
    )
    assert next(blocks).replayed == decode(TOKENS[0]).prefix.rows
    assert splits.opened == []


def test_the_batch_size_of_a_state_is_used() -> None:
    splits = Splits()
    run(splits, request_of(ROWS, TOKENS[-1]))
    assert splits.opened == [decode(TOKENS[-1]).batch_rows]


@pytest.mark.parametrize("inline", [False, True])
def test_maps_run_as_they_did_before_a_state(inline: bool) -> None:
    state, splits = replace(decode(TOKENS[-1]), inline=inline), Splits()
    runner = SplitRunner(splits, SplitStates(), lambda: not inline)  # type: ignore[arg-type]
    list(runner.blocks(request_of(ROWS, encode(state)), StreamCounters()))
    assert splits.inline == [inline]


@pytest.mark.parametrize("is_crowded", [False, True])
@pytest.mark.parametrize("rate", [None, 900.0, 1100.0])
def test_quick_maps_run_in_one_thread_where_many_splits_run(
    is_crowded: bool, rate: float | None
) -> None:
    """A slow split that is the last to run needs all CPUs."""
    splits: Any = Splits()
    runner = SplitRunner(splits, SplitStates(), lambda: is_crowded)
    if rate is not None:
        runner._batch_sizer.record_rate(request_of().job, rate)
    list(runner.blocks(request_of(), StreamCounters()))
    assert splits.inline[0] == (is_crowded and rate == 1100.0)


@pytest.mark.parametrize("is_crowded", [False, True])
@pytest.mark.parametrize("may_inline", [False, True])
def test_a_split_that_turns_out_to_be_quick_is_opened_again(
    is_crowded: bool, may_inline: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    quick = functools.partial(MeasuredSplit, rate=None, estimate=2000.0)
    monkeypatch.setattr(split_runner, "measure_rate", lambda split, *_: quick(split))
    splits: Any = Splits(may_inline=may_inline)
    runner = SplitRunner(splits, SplitStates(), lambda: is_crowded)
    list(runner.blocks(request_of(), StreamCounters()))
    assert splits.inline == ([False, True] if is_crowded and may_inline else [False])
    assert splits.produced <= 2 * ROWS


@pytest.mark.parametrize("problem", ["other dataset", "refused by TensorFlow", "broken"])
def test_a_state_that_cannot_be_used_is_replaced_by_a_replay(problem: str) -> None:
    start = decode(TOKENS[0]).prefix.rows + 1
    splits = {
        "other dataset": Splits(key=b"o" * KEY_BYTES),
        "refused by TensorFlow": Splits(refuses=True),
        "broken": Splits(broken={start - 1}),
    }[problem]
    found, states = run(splits, request_of(start, TOKENS[0], **checked(start)))
    assert rows_in(received(found)) == list(range(start, ROWS))
    assert splits.produced >= ROWS
    assert states.counts["refused"] == 1


def test_a_damaged_state_is_replaced_by_a_replay() -> None:
    splits = Splits()
    found, states = run(splits, request_of(8, TOKENS[0][:-1] + b"!", **checked(8)))
    assert rows_in(received(found)) == list(range(8, ROWS))
    assert splits.produced >= ROWS
    assert states.counts["refused"] == 1


def test_changed_rows_are_replayed_and_reported() -> None:
    """The state has the old digest, so only rows behind it show the change."""
    start = decode(TOKENS[0]).prefix.rows + 1
    splits = Splits(shift=100)
    found, states = run(splits, request_of(start, TOKENS[0], **checked(start)))
    blocks = received(found)
    assert rows_in(blocks) == list(range(start + 100, ROWS + 100))
    assert blocks[0].prefix_differs
    assert states.counts["refused"] == 1


def test_a_state_at_the_start_is_not_used_because_no_row_would_show_a_change() -> None:
    start = decode(TOKENS[0]).prefix.rows
    splits = Splits(shift=100)
    found, states = run(splits, request_of(start, TOKENS[0], **checked(start)))
    assert received(found)[0].prefix_differs
    assert states.counts == {
        "saved": states.counts["saved"],
        "restored": 0,
        "refused": 0,
        "skipped": 0,
    }


def test_a_state_with_another_digest_is_replaced_by_a_replay() -> None:
    start = decode(TOKENS[0]).prefix.rows + 1
    fields = {**checked(start), "prefix_digest": 1}
    found, states = run(Splits(), request_of(start, TOKENS[0], **fields))
    assert states.counts["refused"] == 1
    assert received(found)[0].prefix_differs


def test_a_split_that_has_become_shorter_is_replayed() -> None:
    token = TOKENS[1]
    at = decode(token).prefix.rows
    splits = Splits(rows=at + 1)
    found, states = run(splits, request_of(at + 3, token))
    assert states.counts["refused"] == 1
    assert [(block.first_row, block.last) for block in received(found)] == [(at + 1, True)]
    assert splits.produced >= at + 1


def test_no_state_is_saved_from_rows_that_are_not_verified() -> None:
    start = decode(TOKENS[0]).prefix.rows + 8
    found, _ = run(Splits(), request_of(start, TOKENS[0], **checked(start)))
    rows = [decode(block.resume_token).prefix.rows for block in found if block.resume_token]
    assert rows
    assert min(rows) >= start


@pytest.mark.parametrize("damage", [b"", b"!"], ids=["whole", "damaged"])
def test_a_state_in_a_folder_restores_another_job(tmp_path: Path, damage: bytes) -> None:
    first: Any = Splits()
    files = StateFiles(tmp_path)
    found = list(SplitRunner(first, SplitStates(files)).blocks(request_of(), StreamCounters()))
    files.flush()
    paths = list(tmp_path.iterdir())
    assert len(paths) > 2
    for path in paths:
        path.write_bytes(path.read_bytes() + damage)
    splits: Any = Splits()
    states = SplitStates(StateFiles(tmp_path))
    start = ROWS - 2
    request = request_of(start, **checked(start))
    found = list(SplitRunner(splits, states).blocks(request, StreamCounters()))
    assert rows_in(received(found)) == list(range(start, ROWS))
    assert (splits.produced < ROWS) == (not damage)
    assert states.counts["restored"] == (not damage)
    assert states.counts["refused"] == bool(damage)
    assert not list(tmp_path.glob("*.used"))


def anchored(row: int, anchor: int) -> dict[str, Any]:
    known = PREFIXES[anchor]
    return {**checked(row), "anchor_rows": anchor, "anchor_digest": known.digest}


@given(st.data())
def test_a_split_that_skips_rows_has_the_rows_of_a_replayed_one(data: st.DataObject) -> None:
    start = data.draw(st.integers(2, ROWS))
    known = data.draw(st.integers(2, start))
    anchor = data.draw(st.integers(1, known - 1))
    splits = Splits(skips=data.draw(st.integers(1, 5)))
    found, states = run(splits, request_of(start, **anchored(known, anchor)))
    blocks = received(found)
    assert rows_in(blocks) == list(range(start, ROWS))
    skipped = anchor - anchor % splits.skips
    assert splits.produced == ROWS - skipped
    assert states.counts["skipped"] == (skipped > 0)
    assert blocks[0].prefix_digest == PREFIXES[start].digest
    assert blocks[-1].prefix_digest == PREFIXES[ROWS].digest
    assert not blocks[0].prefix_differs
    assert blocks[-1].last


def test_a_split_that_cannot_skip_rows_is_replayed_once() -> None:
    splits = Splits()
    found, states = run(splits, request_of(20, **anchored(20, 8)))
    assert rows_in(received(found)) == list(range(20, ROWS))
    assert splits.produced == ROWS
    assert states.counts["skipped"] == states.counts["refused"] == 0


@pytest.mark.parametrize(
    ("splits", "fields", "differs"),
    [
        (Splits(skips=1, shift=100), {}, True),
        (Splits(skips=1), {"anchor_digest": 1}, False),  # of a damaged position
        (Splits(skips=1), {"prefix_digest": 1}, True),
        (Splits(skips=1, broken={12}), {}, False),
        (Splits(skips=1, refuses=True), {}, False),
    ],
    ids=["other rows", "other anchor", "other prefix", "broken", "not opened"],
)
def test_a_split_that_cannot_be_verified_behind_skipped_rows_is_replayed(
    splits: Splits, fields: dict[str, Any], differs: bool
) -> None:
    found, states = run(splits, request_of(20, **{**anchored(20, 8), **fields}))
    blocks = received(found)
    assert rows_in(blocks) == list(range(20 + splits.shift, ROWS + splits.shift))
    assert blocks[0].prefix_differs == differs
    assert states.counts["refused"] == 1
    assert splits.produced >= ROWS
    assert splits.shift or blocks[0].prefix_digest == PREFIXES[20].digest


def test_a_skip_that_takes_long_is_replaced_by_a_replay_that_reports(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_runner, "_SKIP_SECONDS", 0.05)
    splits, ends = Splits(skips=1), threading.Event()
    read = Elements.__next__

    def next_row(elements: Elements) -> dict[str, Any]:
        if elements.skipped:
            ends.wait()
            raise StopIteration
        return read(elements)

    monkeypatch.setattr(Elements, "__next__", next_row)
    found, states = run(splits, request_of(20, **anchored(20, 8)))
    ends.set()
    assert rows_in(received(found)) == list(range(20, ROWS))
    assert (states.counts["refused"], states.counts["skipped"]) == (1, 0)


@pytest.mark.parametrize("rows", [5, 8, 15])
def test_the_length_of_a_shorter_split_is_not_guessed_from_skipped_rows(rows: int) -> None:
    splits = Splits(skips=1, rows=rows)
    found, _ = run(splits, request_of(20, **anchored(20, 8)))
    assert [(block.first_row, block.last) for block in received(found)] == [(rows, True)]
    assert received(found)[0].prefix_differs


def test_a_saved_state_is_used_before_rows_are_skipped() -> None:
    start = decode(TOKENS[0]).prefix.rows + 4
    splits = Splits(skips=1)
    _, states = run(splits, request_of(start, TOKENS[0], **anchored(start, 1)))
    assert (states.counts["restored"], states.counts["skipped"]) == (1, 0)


def test_rows_are_skipped_if_a_saved_state_cannot_be_used() -> None:
    splits = Splits(skips=1, key=b"o" * KEY_BYTES)
    _, states = run(splits, request_of(20, TOKENS[0], **anchored(20, 8)))
    assert (states.counts["refused"], states.counts["skipped"]) == (1, 1)
    assert splits.produced == ROWS - 8


def test_a_split_that_has_skipped_rows_keeps_the_skip_with_other_elements() -> None:
    splits = Splits(skips=1, calls=8)
    found, _ = run(splits, request_of(20, **anchored(20, 8)))
    assert splits.opened == [4, 8]
    assert rows_in(received(found)) == list(range(20, ROWS))
    assert splits.produced == ROWS - 8


def test_an_error_after_the_first_rows_is_not_hidden() -> None:
    start = decode(TOKENS[0]).prefix.rows + 1
    splits = Splits(broken={start + 7})
    with pytest.raises(Exception, match="the disk is gone"):
        run(splits, request_of(start, TOKENS[0], **checked(start)))
    assert splits.opened[1:] == []


def test_rows_that_are_made_in_parallel_share_an_element_from_the_second_opening_on() -> None:
    splits: Any = Splits(calls=8)
    runner = SplitRunner(splits, SplitStates())
    first = list(runner.blocks(request_of(), StreamCounters()))
    assert splits.opened[:2] == [4, 8]
    assert {block.rows for block in received(first)[:-2]} == {8}
    splits.opened.clear()
    list(runner.blocks(request_of(), StreamCounters()))
    assert splits.opened[0] >= 8


def test_the_rate_of_a_long_split_is_recorded_while_it_runs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(split_runner, "_FIRST_RATE_SECONDS", 0.0)
    splits: Any = Splits()
    runner = SplitRunner(splits, SplitStates())
    recorded: list[float] = []
    monkeypatch.setattr(BatchSizer, "record_rate", lambda _self, _job, rate: recorded.append(rate))
    blocks = runner.blocks(request_of(), StreamCounters())
    while next(blocks).resume_token:
        pass
    assert recorded


def excluding(step: str, **fields: Any) -> worker_pb2.StreamRequest:
    request = request_of(split=2, epoch=1)
    request.job.bad_records.excluded.add(step=step, index=7, **fields)
    return request


@pytest.mark.parametrize("step", ["parse", "TFRecordDataset"])
def test_a_split_with_excluded_records_has_guards_from_the_start(step: str) -> None:
    splits = GuardedSplits()
    found, _ = run(splits, excluding(step, split=2))
    assert rows_in(received(found)) == list(range(ROWS))
    assert [one.has_files for one in splits.guards] == [step == "TFRecordDataset"]


@pytest.mark.parametrize("fields", [{"split": 3}, {"epoch": 0}])
def test_other_splits_have_no_guards(fields: dict[str, int]) -> None:
    splits = GuardedSplits()
    run(splits, excluding("parse", **fields))
    assert set(splits.guards) == {None}


def test_records_without_an_index_cannot_be_excluded() -> None:
    request = excluding("parse")
    request.job.entry_point.target = "a:b"
    with pytest.raises(DatasetFnError, match="the records of a Python iterable have no index"):
        run(GuardedSplits(), request)


def test_excluded_rows_of_an_indexed_dataset_have_its_step() -> None:
    request = excluding("parse")
    request.job.indexed_rows = ROWS
    with pytest.raises(DatasetFnError, match="the step of a row is __getitem__"):
        run(GuardedSplits(), request)
    splits, request = GuardedSplits(), excluding("__getitem__")
    request.job.indexed_rows = ROWS
    run(splits, request)
    assert None not in splits.guards


class Iterables:
    """A fake `SplitOpener` of a Python iterable that writes each row to the same memory."""

    def open(self, *_: Any, **__: Any) -> SplitIterator:
        return SplitIterator(self._rows(), ROW, False, from_python=True)

    def _rows(self) -> Iterator[Any]:
        memory = np.zeros((), np.int64)
        for row in range(ROWS):
            memory[...] = row
            yield {"id": memory}


def test_an_iterable_may_reuse_its_memory() -> None:
    found, _ = run(Iterables(), request_of())
    assert rows_in(received(found)) == list(range(ROWS))


def test_the_elements_of_a_quick_dataset_fill_the_requested_blocks(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    splits = Splits(rows=10_000)
    runner = SplitRunner(splits, SplitStates())  # type: ignore[arg-type]
    runner._batch_sizer.record_rate(request_of().job, 1e12)
    monkeypatch.setattr(batch_sizer, "_ELEMENT_SECONDS", 1.0)
    list(runner.blocks(request_of(block_bytes=2 * BLOCK_BYTES), StreamCounters()))
    assert splits.opened == [2 * BLOCK_BYTES // 8]


class BoundarySplits(Splits):
    """Splits of which the first one fails at a row: files of its boundary cannot be read."""

    def open(self, *of: Any, **others: Any) -> SplitIterator:
        opened = super().open(*of, **others)
        return replace(opened, elements=self._elements(opened.elements, len(self.opened)))

    def _elements(self, elements: Iterator[Any], opened: int) -> Iterator[Any]:
        for element in elements:
            if opened == 1 and element["id"][0] >= 20:
                self.shift = self.later_shift
                raise BoundaryError("cannot be read")
            yield element

    later_shift = 0


def test_a_split_continues_without_the_files_of_its_boundary() -> None:
    splits = BoundarySplits()
    found = received(run(splits, request_of())[0])
    assert rows_in(found) == list(range(ROWS))
    assert found[-1].prefix_digest == PREFIXES[-1].digest


def test_other_rows_without_the_files_of_a_boundary_are_an_error() -> None:
    splits = BoundarySplits()
    splits.later_shift = 1
    with pytest.raises(UnavailableError, match="not computed again"):
        run(splits, request_of())
