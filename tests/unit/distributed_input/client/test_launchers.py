"""Processes of one launcher are recognized, and one process in each pod is not."""

from __future__ import annotations

import pytest

from distributed_input.client.launchers import LocalRank, local_rank


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"},
            LocalRank("LOCAL_RANK", 1, 2),
        ),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "2"}, LocalRank("LOCAL_RANK", 0, 2)),
        (
            {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            LocalRank("OMPI_COMM_WORLD_LOCAL_RANK", 0, 8),
        ),
        (
            {"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2"},
            LocalRank("SLURM_LOCALID", 1, 2),
        ),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "4"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, None),
        ({"LOCAL_RANK": "", "LOCAL_WORLD_SIZE": "2"}, None),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2(x3)"}, None),
        ({}, None),
    ],
)
def test_the_rank_on_this_machine(env: dict[str, str], expected: LocalRank | None) -> None:
    assert local_rank(env) == expected


def test_the_remedy_has_the_number_of_ranks() -> None:
    remedy = LocalRank("LOCAL_RANK", 1, 2).remedy
    assert "rank 1 of 2 processes on this machine (LOCAL_RANK)" in remedy
    assert "--trainers 2" in remedy
