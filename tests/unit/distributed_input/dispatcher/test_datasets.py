"""The store of traced datasets: verification and limits."""

from __future__ import annotations

import hashlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from distributed_input.api.errors import TerminalError
from distributed_input.dispatcher.datasets import PIECE_BYTES, DatasetStore, DatasetUpload
from distributed_input.link.statuses import InvalidRequestError, NotFoundError


def put(datasets: DatasetStore, data: bytes, in_use: frozenset[str] = frozenset()) -> str:
    upload = DatasetUpload(hashlib.sha256(data).hexdigest())
    datasets.reserve(len(data), in_use)
    upload.add(data)
    datasets.add(upload.dataset_id, upload.finish())
    return upload.dataset_id


def test_a_stored_dataset_is_returned_unchanged():
    datasets = DatasetStore(100)
    name = put(datasets, b"data")
    assert datasets.get(name) == (b"data",)
    assert (datasets.count, datasets.size) == (1, 4)
    assert put(datasets, b"data") == name
    assert (datasets.count, datasets.size) == (1, 4)


def test_a_missing_dataset_is_not_found():
    with pytest.raises(NotFoundError, match="not registered"):
        DatasetStore(100).get("0" * 64)


def test_the_least_recently_used_dataset_is_removed_first():
    datasets = DatasetStore(10)
    a, b, c = (put(datasets, data) for data in (b"aaa", b"bbb", b"ccc"))
    datasets.get(a)
    d = put(datasets, b"dddd", frozenset({b}))
    assert [datasets.has(name) for name in (a, b, c, d)] == [True, True, False, True]


def test_datasets_in_use_stay_and_the_error_names_the_limit():
    datasets = DatasetStore(10)
    a = put(datasets, b"aaaaaa")
    with pytest.raises(TerminalError, match=r"the limit is 10 bytes \(--max-dataset-bytes\)"):
        put(datasets, b"bbbbbb", frozenset({a}))
    assert datasets.has(a)
    assert datasets.size == 6


def test_uploads_count_towards_the_limit():
    datasets = DatasetStore(10)
    datasets.reserve(8, ())
    with pytest.raises(TerminalError, match="uploads have 11"):
        datasets.reserve(3, ())
    datasets.unreserve(8)
    datasets.reserve(10, ())


def test_damaged_data_is_rejected():
    upload = DatasetUpload(hashlib.sha256(b"data").hexdigest())
    upload.add(b"dat")
    upload.add(b"A")
    with pytest.raises(InvalidRequestError, match="is not the SHA-256 of the 4 bytes"):
        upload.finish()


@pytest.mark.parametrize("name", ["", "x", "A" * 64, "0" * 63, "0" * 65, "0" * 64 + "\n"])
def test_an_invalid_id_is_rejected(name):
    with pytest.raises(InvalidRequestError, match="dataset_id"):
        DatasetUpload(name)


def test_small_chunks_become_few_pieces():
    data = bytes(range(256)) * (PIECE_BYTES // 256) * 2 + b"rest"
    upload = DatasetUpload(hashlib.sha256(data).hexdigest())
    for start in range(0, len(data), 1000):
        upload.add(data[start : start + 1000])
    pieces = upload.finish()
    assert b"".join(pieces) == data
    assert [len(piece) for piece in pieces] == [PIECE_BYTES, PIECE_BYTES, 4]


@given(
    st.lists(st.tuples(st.sampled_from("pgr"), st.binary(min_size=1, max_size=6))),
    st.sets(st.binary(min_size=1, max_size=6), max_size=3),
)
def test_the_size_limit_always_holds(steps, pinned):
    datasets, reserved = DatasetStore(12), 0
    in_use = frozenset(hashlib.sha256(data).hexdigest() for data in pinned)
    had: set[str] = set()
    for step, data in steps:
        name = hashlib.sha256(data).hexdigest()
        try:
            if step == "p":
                put(datasets, data, in_use)
                had |= {name} & in_use
            elif step == "g":
                assert b"".join(datasets.get(name)) == data
            else:
                datasets.reserve(len(data), in_use)
                reserved += len(data)
        except (TerminalError, NotFoundError):
            pass
        assert datasets.size <= 12
        stored = sum(len(piece) for blob in datasets._blobs.values() for piece in blob)
        assert datasets.size == stored + reserved
        assert had <= datasets._blobs.keys()
