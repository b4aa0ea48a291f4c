"""A split's rows as blocks; what is made again before them."""

from __future__ import annotations

import numpy as np
import pytest

from distributed_input.api.proto import types_pb2, worker_pb2
from distributed_input.rows import blocks
from distributed_input.rows.elements import ElementSpec, Leaf
from distributed_input.worker.datasets.sources import Source
from distributed_input.worker.streams import stream
from distributed_input.worker.streams.stream import Work, split_blocks

ROW = ElementSpec({"id": 0}, (Leaf("id", "dense", "int64", ()),))


def test_a_long_replay_tells_how_far_it_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "_TELL_SECONDS", 0.0)
    job = types_pb2.Job(name="train", row_spec=ROW.to_json())
    request = worker_pb2.StreamRequest(job=job, start_row=4)
    source = Source(({"id": np.int64(row)} for row in range(6)), ROW, batched=False)
    work = Work()
    made = split_blocks(request, source, "node", work)
    for again in range(1, 5):
        told = next(made)
        assert (told.replayed, told.rows, told.last) == (again, 0, False)
        assert blocks.decode(told.data).replayed == again
        assert work.replayed_rows == again
    rest = list(made)
    assert [block.rows for block in rest[:-1]] == [2] or sum(b.rows for b in rest) == 2
    assert [block.last for block in rest] == [False] * (len(rest) - 1) + [True]
    assert rest[0].first_row == 4
