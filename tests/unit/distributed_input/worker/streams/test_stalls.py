"""A split whose next rows take long is reported, and a later stream makes another attempt."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any

import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows.blocks import RowBlock
from distributed_input.worker.compute.compute_pool import ComputePool
from distributed_input.worker.streams import block_producer, stalls
from distributed_input.worker.streams.running_split import RunningSplit
from distributed_input.worker.streams.shared_producers import SharedProducers
from tests.unit.distributed_input.worker.streams.blockcases import ROW, block_of, end_of
from tests.unit.distributed_input.worker.streams.pulled_stream import PulledStream


class Splits:
    """Starts splits with rows 0 and 1. The first split that is started hangs at row 1."""

    def __init__(self) -> None:
        self.hangs, self.release = threading.Event(), threading.Event()

    def open(self, request: worker_pb2.StreamRequest, _counters: Any) -> RunningSplit:
        return RunningSplit(request, self.start)

    def start(self) -> Generator[RowBlock, None, None]:
        yield block_of(0, 1)
        if not self.hangs.is_set():
            self.hangs.set()
            self.release.wait(30)
        yield block_of(1, 1)
        yield end_of(2)


def request() -> worker_pb2.StreamRequest:
    entry = types_pb2.EntryPoint(target="data:rows")
    job = types_pb2.Job(name="train", entry_point=entry, row_spec=ROW.to_json())
    return worker_pb2.StreamRequest(job=job, epoch=2, split=3)


@pytest.fixture
def splits() -> Generator[Splits, None, None]:
    splits = Splits()
    yield splits
    splits.release.set()


def place(run: Callable[[], Any]) -> str:
    """Return where a thread is that runs a function, which waits for 0.5 s."""
    thread = threading.Thread(target=run)
    thread.start()
    time.sleep(0.2)
    found = stalls.place_of(thread.ident or 0)
    thread.join()
    return found


def test_a_split_without_a_line_of_the_user_is_in_tensorflow() -> None:
    """Neither a line of this package nor one of TensorFlow says anything about the dataset."""
    package = Path(stalls.__file__).parents[2]
    for file in (package / "worker" / "streams" / "own.py", "/lib/site-packages/tensorflow/ops.py"):
        names: dict[str, Any] = {"time": time}
        exec(compile("def run(): time.sleep(0.5)", str(file), "exec"), names)
        assert place(names["run"]) == "in TensorFlow"


def test_the_line_of_the_user_is_named_also_as_the_innermost_one() -> None:
    def own() -> None:
        time.sleep(0.5)

    assert re.fullmatch(rf"in own \({re.escape(__file__)}:\d+\)", place(own))


def test_a_line_in_a_file_whose_name_is_not_utf_8_is_named_with_escapes() -> None:
    names: dict[str, Any] = {"time": time}
    exec(compile("def run(): time.sleep(0.5)", "/caf\udce9.py", "exec"), names)
    assert place(names["run"]) == "in run (/caf\\udce9.py:1)"


def test_tensorflow_that_the_user_calls_has_no_line() -> None:
    names: dict[str, Any] = {"time": time}
    file = "/lib/site-packages/tensorflow/ops.py"
    exec(compile("def run(): time.sleep(0.5)", file, "exec"), names)

    def own() -> None:
        names["run"]()

    assert re.fullmatch(rf"in own \({re.escape(__file__)}:\d+\), in TensorFlow", place(own))


def test_a_split_that_hangs_is_reported_and_can_be_read_again(
    splits: Splits, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stalls, "STALL_SECONDS", 0.2)
    monkeypatch.setattr(block_producer, "_MAX_JOIN_SECONDS", 0.3)
    producers = SharedProducers(splits.open, ComputePool(1), 1 << 20)

    def read() -> list[int]:
        return [block.rows for block in PulledStream(producers, request())]

    thread = threading.Thread(target=read)
    thread.start()
    assert splits.hangs.wait(10)
    assert not producers.stalled()
    time.sleep(0.4)
    (stalled,) = producers.stalled()
    assert (stalled.split, stalled.epoch, stalled.row) == (3, 2, 1)
    assert list(stalled.jobs) == ["train"]
    assert stalled.dataset == "data:rows"
    here = re.escape(__file__)
    assert re.match(rf"in start \({here}:\d+\), in wait \(.*threading", stalled.at)
    began = time.monotonic()
    assert read() == [1, 1, 0]
    assert time.monotonic() - began < 10, "the stream waited for the one that hangs"
    splits.release.set()
    thread.join(10)
    assert not producers.stalled()


class SlowEnds(Splits):
    """Starts splits whose end takes long, as when TensorFlow deletes their iterator."""

    def start(self, *_: Any) -> Generator[RowBlock, None, None]:
        try:
            yield block_of(0, 1)
            yield end_of(1)
        finally:
            self.hangs.set()
            self.release.wait(30)


def test_a_split_that_has_ended_is_sent_and_does_not_stall(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(stalls, "STALL_SECONDS", 0.0)
    splits = SlowEnds()
    producers = SharedProducers(splits.open, ComputePool(1), 1 << 20)
    try:
        assert [block.rows for block in PulledStream(producers, request())] == [1, 0]
        assert splits.hangs.wait(10)
        assert not producers.stalled()
        assert not splits.release.is_set()
    finally:
        splits.release.set()
