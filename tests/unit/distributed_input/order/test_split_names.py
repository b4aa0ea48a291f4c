"""The names of splits, compared with the way in which workers find them."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.proto import types_pb2
from distributed_input.order import mixture
from distributed_input.order.split_names import split_names


def test_without_a_mixture_the_number_of_a_split_is_its_name() -> None:
    found = split_names(types_pb2.Job(num_splits=4), 7, np.array([3, -1, 0]))
    assert found.source.tolist() == ["", "", ""]
    assert found.epoch.tolist() == [7, -1, 7]
    assert found.split.tolist() == [3, -1, 0]


@given(
    st.lists(st.integers(1, 9), min_size=1, max_size=4),
    st.lists(st.integers(0, 10**6), max_size=9),
    st.integers(0, 3),
)
def test_splits_of_a_mixture_have_the_names_by_which_workers_run_them(
    sizes: list[int], numbers: list[int], epoch: int
) -> None:
    sources = [
        types_pb2.Job(entry_point=types_pb2.EntryPoint(source=f"source-{at}"), num_splits=size)
        for at, size in enumerate(sizes)
    ]
    job = types_pb2.Job(num_splits=sum(sizes), sources=sources)
    found = split_names(job, epoch, np.array(numbers, np.int64))
    located = [mixture.source_split(job.num_splits, sources, epoch, one) for one in numbers]
    assert found.source.tolist() == [one.job.entry_point.source for one in located]
    assert found.epoch.tolist() == [one.epoch for one in located]
    assert found.split.tolist() == [one.split for one in located]
