"""Streams that share a source: each gets its own rows, whoever makes them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from distributed_input.api.errors import UnavailableError
from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.blocks import RowBlock, digest_of
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.streams import readership
from distributed_input.worker.streams import shared as module
from distributed_input.worker.streams.fair_semaphore import Turns
from distributed_input.worker.streams.shared import Shared
from distributed_input.worker.streams.stream import Work
from distributed_input.worker.streams.window import Made
from tests.unit.distributed_input.sidecar.system import eventually

ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))
ROWS = 40
WIDE = 1 << 10  # what the windows' limits take a row to weigh: encoded, it is some 100 bytes


def digests_of(first: int, rows: int) -> np.ndarray:
    return np.arange(first, first + rows, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)


def digest_before(row: int) -> int:
    return digest_of(digests_of(0, row))


class Sources:
    """Rows 0 to 39, as blocks cut at other rows in each source.

    Attributes:
        made: rows that were made, those replayed not counted.
        opened: sources.
        tells: of rows that they make again.
    """

    tells = False

    def __init__(self, cuts: list[int], total: int = ROWS, salt: int = 0) -> None:
        self._cuts, self._total, self._salt = cuts, total, salt
        self.made = self.opened = 0

    def start(self, request: worker_pb2.StreamRequest, work: Work) -> Generator[Made, None, None]:
        self.opened += 1
        cut = self._cuts[self.opened % len(self._cuts)]
        return self._blocks(request, cut)

    def _blocks(self, request: worker_pb2.StreamRequest, cut: int) -> Generator[Made, None, None]:
        row = min(request.start_row, self._total)
        known = digest_before(request.prefix_rows)
        differs = request.check_prefix and known != request.prefix_digest
        before, first = digest_before(row), True
        for again in range(15, row if self.tells else 0, 15):
            yield made_again(again)
        while True:
            rows = min(cut, self._total - row)
            self.made += rows
            digests = digests_of(row, rows)
            data = np.arange(row, row + rows, dtype=np.int64).view(np.uint8)
            block = RowBlock(row, rows, (data,), digests, last=not rows)
            if first:
                block = RowBlock(
                    row, rows, (data,), digests, not rows, differs, "node", 0.0, before
                )
            encoded = blocks.encode(block)
            yield Made(row, rows, digests, encoded, data.nbytes, before, first and differs)
            if not rows:
                return
            row, first = row + rows, False


def made_again(rows: int) -> Made:
    nothing = digests_of(0, 0)
    told = blocks.encode(RowBlock(0, 0, (), nothing, replayed=rows))
    return Made(0, 0, nothing, told, 0, replayed=rows)


def request(job: str = "a", start: int = 0, check: int | None = None) -> worker_pb2.StreamRequest:
    made = worker_pb2.StreamRequest(
        job=types_pb2.Job(name=job, dataset_id="d", row_spec=ROW.to_json()), start_row=start
    )
    if check is not None:
        made.prefix_rows, made.check_prefix = check, True
        made.prefix_digest = digest_before(check)
    return made


def shared_of(sources: Sources, limit: int = 1 << 20, known: bool = True) -> Shared:
    """`known`: two jobs have read the dataset a moment ago."""
    shared = Shared(sources.start, Turns(1), limit)
    for job in ("one", "other") if known else ():
        other_split = request(job, start=ROWS)
        other_split.split = 1
        for _ in shared.blocks(other_split, Work()):
            pass
    sources.opened = sources.made = 0
    return shared


def rows_in(found: list[RowBlock]) -> list[int]:
    return [int(row) for block in found for row in block.buffers[0].view(np.int64)]


@pytest.fixture(autouse=True)
def _no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """All readers of these tests take turns in one thread: nobody comes while another waits."""
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.0)


streams = st.lists(st.tuples(st.integers(0, ROWS + 5), st.booleans()), min_size=1, max_size=6)


@given(
    streams,
    st.lists(st.integers(0, 5), max_size=200),
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.integers(1, 12),
    st.booleans(),
)
@settings(max_examples=80, deadline=None)
def test_every_stream_gets_its_rows_once_and_in_order(
    wanted: list[tuple[int, bool]], schedule: list[int], cuts: list[int], window: int, known: bool
) -> None:
    sources = Sources(cuts)
    sources.tells = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PATIENCE_SECONDS", 0.0)
        patch.setattr(readership, "_YOUNG_SECONDS", 0.0)
        patch.setattr(module, "BLOCK_BYTES", 1)
        patch.setattr(module, "_SPLIT_BYTES", window * 60)
        shared = shared_of(sources, limit=window * 100, known=known)
        work = Work()
        running: dict[int, Iterator[bytes]] = {}
        got: dict[int, list[RowBlock]] = {i: [] for i in range(len(wanted))}
        for i in [*schedule, *(j for _ in range(ROWS + 6) for j in range(len(wanted)))]:
            if i >= len(wanted):
                continue
            if i not in running:
                start, check = wanted[i]
                asked = request(f"job-{i}", start, start if check and start <= ROWS else None)
                asked.tell_replay = i % 2 == 0
                running[i] = iter(shared.blocks(asked, work))
            data = next(running[i], None)
            block = blocks.decode(data) if data is not None else None
            if block is not None and block.replayed:
                assert i % 2 == 0
                assert block.replayed <= wanted[i][0] + len(rows_in(got[i]))
            elif block is not None:
                got[i].append(block)
            most = max(window * 100, len(running) * window * 60) + len(running) * 400
            assert shared.nbytes <= most
        for i, (start, _) in enumerate(wanted):
            found = got[i]
            assert rows_in(found) == list(range(start, ROWS))
            assert found[-1].last
            assert not any(block.last for block in found[:-1])
            assert not any(block.prefix_differs for block in found)
            assert found[0].first_row == min(start, ROWS)
            assert found[0].prefix_digest == digest_before(min(start, ROWS))
            assert sum(digest_of(block.digests) for block in found) % (1 << 64) == (
                digest_before(ROWS) - digest_before(min(start, ROWS))
            ) % (1 << 64)


def test_jobs_in_step_make_rows_once() -> None:
    sources = Sources([7])
    shared, work = shared_of(sources), Work()
    running = [shared.blocks(request(f"job-{i}"), work) for i in range(8)]
    for _ in range(-(-ROWS // 7) + 1):
        for one in running:
            next(one)
    assert (sources.made, sources.opened) == (ROWS, 1)
    assert work.rows == 8 * ROWS
    assert work.shared_rows == 7 * ROWS


def test_a_job_alone_keeps_nothing_once_it_has_run_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(readership, "_YOUNG_SECONDS", 0.0)
    shared = shared_of(Sources([7]), known=False)
    for _ in shared.blocks(request(), Work()):
        assert shared.nbytes == 0


def test_a_job_that_has_just_begun_keeps_rows_for_those_that_start_with_it() -> None:
    sources = Sources([7])
    shared = shared_of(sources, known=False)
    first = shared.blocks(request("a"), Work())
    for _ in range(4):
        next(first)
    assert rows_in([blocks.decode(data) for data in shared.blocks(request("b"), Work())])
    assert sources.opened == 1


@pytest.mark.parametrize("field", ["seed", "epoch", "split"])
def test_another_order_or_split_is_not_shared(field: str) -> None:
    other = request("b")
    setattr(other, field, 1)
    assert opened_for(request(), other) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("dataset_id", "e"), ("global_batch_size", 4), ("num_splits", 3)]
)
def test_another_dataset_or_batch_is_not_shared(field: str, value: object) -> None:
    other = request("b")
    setattr(other.job, field, value)
    assert opened_for(request(), other) == 2


@pytest.mark.parametrize(
    ("field", "value"), [("epochs", 3), ("strict", True), ("remainder", 1), ("order", 1)]
)
def test_what_changes_no_row_is_shared(field: str, value: object) -> None:
    other = request("b")
    setattr(other.job, field, value)
    assert opened_for(request(), other) == 1


def opened_for(*requests: worker_pb2.StreamRequest) -> int:
    """Sources that streams of these requests need, side by side."""
    sources = Sources([7])
    shared = shared_of(sources)
    running = [iter(shared.blocks(one, Work())) for one in requests]
    for one in running:
        next(one)
    return sources.opened


def test_a_job_that_comes_a_little_later_finds_what_was_made() -> None:
    sources = Sources([7])
    shared = shared_of(sources)
    assert rows_in([blocks.decode(d) for d in shared.blocks(request("a"), Work())])
    opened = sources.opened
    late = [blocks.decode(data) for data in shared.blocks(request("b"), Work())]
    assert rows_in(late) == list(range(ROWS))
    assert sources.opened == opened


def test_who_falls_behind_goes_on_alone_and_another_may_join_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    sources = Sources([2])
    shared = shared_of(sources, limit=1)
    slow = [shared.blocks(request(f"slow-{i}"), Work()) for i in range(2)]
    got = [[blocks.decode(next(one))] for one in slow]
    for _ in shared.blocks(request("quick"), Work()):
        pass
    assert sources.opened == 1
    for _ in range(ROWS // 2):
        for one, found in zip(slow, got, strict=True):
            found.append(blocks.decode(next(one)))
    assert [rows_in(found) for found in got] == [list(range(ROWS))] * 2
    assert sources.opened == 2


def test_who_has_caught_up_goes_over() -> None:
    sources = Sources([4])
    shared = shared_of(sources)
    quick = shared.blocks(request("quick", start=20), Work())
    first = blocks.decode(next(quick))
    late = shared.blocks(request("late"), Work())
    got = [blocks.decode(next(late)) for _ in range(5)]  # rows 0 to 19
    assert sources.opened == 2
    made = sources.made
    rest = [first, *(blocks.decode(data) for data in quick)]
    got += [blocks.decode(data) for data in late]
    assert rows_in(rest) == list(range(20, ROWS))
    assert rows_in(got) == list(range(ROWS))
    assert sources.made == made + (ROWS - 24)


def test_a_prefix_that_differs_is_told_to_whom_it_concerns() -> None:
    shared = shared_of(Sources([8]))
    leader = shared.blocks(request("a"), Work())
    assert not blocks.decode(next(leader)).prefix_differs
    keeps = shared.blocks(request("b"), Work())
    next(keeps)
    wrong = request("c", start=8, check=8)
    wrong.prefix_digest += 1
    assert blocks.decode(next(iter(shared.blocks(wrong, Work())))).prefix_differs
    right = request("d", start=8, check=8)
    assert not blocks.decode(next(iter(shared.blocks(right, Work())))).prefix_differs


def test_a_source_that_makes_other_rows_is_for_nobody_else() -> None:
    sources = Sources([8])
    shared = shared_of(sources)
    wrong = request("wrong", start=8, check=8)
    wrong.prefix_digest += 1
    leader = shared.blocks(wrong, Work())
    assert blocks.decode(next(leader)).prefix_differs
    next(iter(shared.blocks(request("other", start=16), Work())))
    assert sources.opened == 2
    assert sum(1 for _ in leader) == (ROWS - 16) // 8 + 1
    assert not any(feed.differs for feed in feeds_of(shared)), "nor is it kept"


def test_who_wants_to_know_of_rows_before_those_that_a_source_made_has_its_own() -> None:
    sources = Sources([8])
    shared = shared_of(sources)
    one = shared.blocks(request("a", start=16), Work())
    next(one)
    first = blocks.decode(next(iter(shared.blocks(request("b", start=16, check=8), Work()))))
    assert sources.opened == 2
    assert not first.prefix_differs


def test_what_is_kept_of_splits_that_ended_is_bounded_and_of_others_nothing() -> None:
    limit = 2000
    shared = shared_of(Sources([7]), limit=limit)
    for split in range(2, 12):
        wanted = request()
        wanted.split = split
        assert sum(1 for _ in shared.blocks(wanted, Work()))
        assert 0 < shared.nbytes <= limit
    kept = len(feeds_of(shared))
    broken_off = shared.blocks(request(), Work())
    next(iter(broken_off))
    del broken_off
    assert len(feeds_of(shared)) == kept


class Gated(Sources):
    """From the second source on, nothing is made until `gate`; `other` shifts what came before."""

    def __init__(self, cuts: list[int], other: int = 0) -> None:
        super().__init__(cuts)
        self.gate, self.begun = threading.Event(), threading.Event()
        self._other = other

    def _blocks(self, request: worker_pb2.StreamRequest, cut: int) -> Generator[Made, None, None]:
        gated = self.opened > 1
        for made in super()._blocks(request, cut):
            if gated:
                self.begun.set()
                assert self.gate.wait(20)
                made = replace(made, before=made.before + self._other)
            yield made


def in_thread(blocks_of: Iterator[bytes]) -> Callable[[], object]:
    """Ask for the next block there; what came of it, when asked in turn."""
    came: list[object] = []

    def ask() -> None:
        try:
            came.append(blocks.decode(next(blocks_of)))
        except UnavailableError as error:
            came.append(error)

    thread = threading.Thread(target=ask, daemon=True)
    thread.start()

    def result() -> object:
        thread.join(20)
        return came[0]

    return result


def test_what_differs_for_the_leader_does_not_for_who_joined_before_it_was_known() -> None:
    sources = Gated([8])
    shared = shared_of(sources)
    list(shared.blocks(request("first", start=ROWS), Work()))
    wrong = request("wrong", start=8, check=8)
    wrong.prefix_digest += 1
    leader = in_thread(shared.blocks(wrong, Work()))
    assert sources.begun.wait(20)
    joined = in_thread(shared.blocks(request("right", start=8, check=8), Work()))
    eventually(lambda: any(len(feed.window.readers) == 2 for feed in feeds_of(shared)))
    sources.gate.set()
    led, followed = leader(), joined()
    assert isinstance(led, RowBlock)
    assert led.prefix_differs
    assert isinstance(followed, RowBlock)
    assert not followed.prefix_differs


def test_who_goes_over_to_a_source_with_other_rows_before_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    sources = Gated([2], other=1)
    shared = shared_of(sources, limit=1)
    slow = shared.blocks(request("slow"), Work())
    next(slow)  # rows 0 and 1
    for _ in shared.blocks(request("quick"), Work()):
        pass  # and the window has left it behind
    unchecked = in_thread(shared.blocks(request("other", start=2), Work()))
    assert sources.begun.wait(20)
    went_over = in_thread(slow)
    eventually(lambda: any(len(feed.window.readers) == 2 for feed in feeds_of(shared)))
    sources.gate.set()
    assert isinstance(unchecked(), RowBlock)
    assert isinstance(went_over(), UnavailableError)


def feeds_of(shared: Shared) -> list[Any]:
    return [feed for feeds in list(shared._feeds.values()) for feed in feeds]


def test_an_error_ends_all_who_share_and_the_next_tries_anew() -> None:
    class Broken(Sources):
        def _blocks(
            self, request: worker_pb2.StreamRequest, cut: int
        ) -> Generator[Made, None, None]:
            for count, made in enumerate(super()._blocks(request, cut)):
                if self.opened == 1 and count == 2:
                    raise OSError("the disk is gone")
                yield made

    sources = Broken([4])
    shared = shared_of(sources)
    pair = [shared.blocks(request(f"job-{i}"), Work()) for i in range(2)]
    for one in pair:
        next(one), next(one)
    with pytest.raises(OSError, match="disk"):
        next(pair[0])
    # The other has not heard of it yet.
    again = [blocks.decode(data) for data in shared.blocks(request(), Work())]
    assert rows_in(again) == list(range(ROWS))
    with pytest.raises(OSError, match="disk"):
        next(pair[1])


def test_a_leader_waits_for_a_laggard_but_not_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 5.0)
    monkeypatch.setattr(module, "BLOCK_BYTES", 1)
    sources = Sources([2])
    shared = shared_of(sources, limit=1)
    slow = shared.blocks(request("slow"), Work())
    next(slow)
    quick = shared.blocks(request("quick"), Work())
    next(quick)
    ahead = threading.Event()

    def run() -> None:
        for _ in quick:
            pass
        ahead.set()

    thread = threading.Thread(target=run)
    thread.start()
    assert not ahead.wait(0.3)  # the laggard stands still
    assert sum(1 for _ in slow) == ROWS // 2
    assert ahead.wait(10)
    thread.join()
    assert sources.opened == 1
    assert sources.made == ROWS

    monkeypatch.setattr(module, "_PATIENCE_SECONDS", 0.2)
    shared = shared_of(Sources([2]), limit=1)
    stands = shared.blocks(request("slow"), Work())
    next(stands)
    assert sum(1 for _ in shared.blocks(request("quick"), Work())) == ROWS // 2 + 1
