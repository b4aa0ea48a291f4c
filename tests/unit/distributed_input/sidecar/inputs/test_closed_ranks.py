"""The readers that have closed a job are known to the next sidecar."""

from __future__ import annotations

from pathlib import Path

from distributed_input.api.files import closed_prefix
from distributed_input.sidecar.inputs.closed_ranks import ClosedRanks


def close(folder: Path, rank: object, consumer: int = 0) -> Path:
    """Record what a trainer records."""
    file = folder / f"{closed_prefix('train', consumer, 2)}{rank}"
    file.touch()
    return file


def test_ranks_that_have_recorded_it_are_read(tmp_path: Path) -> None:
    close(tmp_path, 3)
    closed = ClosedRanks(tmp_path, "train", 0, 2)
    assert closed.ranks == {3}
    assert not closed.read()
    close(tmp_path, 12)
    assert closed.read()
    assert closed.ranks == {3, 12}


def test_ranks_of_others_and_other_names_do_not_count(tmp_path: Path) -> None:
    close(tmp_path, 1, consumer=1)
    for name in ("", "x", "-1", "\u0663", "1" * 11):
        close(tmp_path, name)
    closed = ClosedRanks(tmp_path, "train", 0, 2)
    assert closed.ranks == set()
    closed.clear()
    assert len(list(tmp_path.iterdir())) == 6


def test_a_rank_that_reads_again_is_not_known_to_the_next_sidecar(tmp_path: Path) -> None:
    files = [close(tmp_path, rank) for rank in (1, 11)]
    closed = ClosedRanks(tmp_path, "train", 0, 2)
    closed.reopen(1)
    assert closed.ranks == {11}
    assert [file.exists() for file in files] == [False, True]
    closed.clear()
    assert closed.ranks == set()
    assert not files[1].exists()
