from __future__ import annotations

import os
from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.link.blocks import shared_region
from distributed_input.link.blocks.shared_region import RegionReader, RegionWriter

CHUNK = 1 << 16


@pytest.fixture
def ends() -> Iterator[tuple[RegionWriter, RegionReader]]:
    with shared_region.created(4 * CHUNK) as descriptor:
        yield RegionWriter(descriptor), RegionReader(descriptor)


def message(number: int, size: int) -> list[memoryview]:
    """Return a message of two pieces."""
    data = memoryview(np.full(size, number, np.uint8))
    return [data[: size // 3], data[size // 3 :]]


@given(
    st.lists(
        st.one_of(
            st.tuples(st.just("place"), st.integers(1, 3 * CHUNK)),
            st.tuples(st.just("release"), st.integers(0, 9)),
        ),
        max_size=40,
    )
)
def test_a_message_keeps_its_bytes_until_it_is_released(steps: list[tuple[str, int]]) -> None:
    with shared_region.created(8 * CHUNK) as descriptor:
        writer, reader = RegionWriter(descriptor), RegionReader(descriptor)
    held: list[tuple[int, memoryview]] = []
    for number, (step, value) in enumerate(steps, start=1):
        if step == "release":
            del held[value : value + 1]
            continue
        place = writer.place(message(number, value), value)
        used = sum(-(-len(view) // CHUNK) for _, view in held)
        assert place is not None or used, "an empty region has room"
        if place is not None:
            held.append((number, reader.view(place, value)))
        assert all((np.frombuffer(view, np.uint8) == n).all() for n, view in held)
    held.clear()
    assert writer.place(message(1, 8 * CHUNK), 8 * CHUNK) == 0, "all places are free again"


def test_a_place_is_kept_as_long_as_an_array_refers_to_its_message(
    ends: tuple[RegionWriter, RegionReader],
) -> None:
    writer, reader = ends
    place = writer.place(message(7, 4 * CHUNK), 4 * CHUNK)
    assert place is not None
    view = reader.view(place, 4 * CHUNK)
    row = np.frombuffer(view[CHUNK : 2 * CHUNK], np.uint8)[5:9].view(np.int32)
    del view
    assert writer.place(message(8, 1), 1) is None
    del row
    assert writer.place(message(8, 1), 1) == 0


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 4 * CHUNK + 1), (0, 0), (CHUNK, 4 * CHUNK), (1, 1), (5 * CHUNK, 1)]
)
def test_a_message_outside_of_the_region_is_refused(
    ends: tuple[RegionWriter, RegionReader], offset: int, size: int
) -> None:
    with pytest.raises(ValueError, match="outside of its region"):
        ends[1].view(offset, size)


@pytest.mark.parametrize("size", [0, 4096, 4096 + CHUNK - 1, 1 << 40])
def test_another_file_is_refused(size: int) -> None:
    descriptor = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, size)
        with pytest.raises(ValueError, match="not a region"):
            RegionWriter(descriptor)
    finally:
        os.close(descriptor)


def test_a_region_that_its_owner_could_cut_is_refused() -> None:
    descriptor = os.memfd_create("other", os.MFD_ALLOW_SEALING)
    try:
        os.ftruncate(descriptor, 4096 + CHUNK)
        with pytest.raises(ValueError, match="not fixed"):
            RegionWriter(descriptor)
    finally:
        os.close(descriptor)


def test_a_place_between_two_messages_is_used_again(
    ends: tuple[RegionWriter, RegionReader],
) -> None:
    writer, reader = ends
    views = [reader.view(writer.place(message(n, CHUNK), CHUNK) or 0, CHUNK) for n in range(4)]
    del views[1:3]
    assert writer.place(message(9, 2 * CHUNK), 2 * CHUNK) == CHUNK
    assert bytes(views[0][:1]) == b"\0"
    assert bytes(views[1][:1]) == b"\3"
