"""Processes of one launcher are recognized, and one process in each pod is not."""

from __future__ import annotations

import pytest

from distributed_input.trainer import launchers


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (
            {"RANK": "3", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2", "WORLD_SIZE": "4"},
            "rank 1 of 2 (LOCAL_RANK)",
        ),
        (
            {"LOCAL_RANK": "0", "WORLD_SIZE": "2"},
            "rank 0 of 2 (LOCAL_RANK)",
        ),
        (
            {"OMPI_COMM_WORLD_LOCAL_RANK": "0", "OMPI_COMM_WORLD_LOCAL_SIZE": "8"},
            "rank 0 of 8 (OMPI_COMM_WORLD_LOCAL_RANK)",
        ),
        (
            {"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2"},
            "rank 1 of 2 (SLURM_LOCALID)",
        ),
        ({"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1", "WORLD_SIZE": "4"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, None),
        ({"LOCAL_RANK": "", "LOCAL_WORLD_SIZE": "2"}, None),
        ({"SLURM_LOCALID": "1", "SLURM_NTASKS_PER_NODE": "2(x3)"}, None),
        ({}, None),
    ],
)
def test_the_remedy_names_the_rank_and_the_number_of_trainers(
    env: dict[str, str], expected: str | None
) -> None:
    remedy = launchers.remedy(env)
    if expected is None:
        assert remedy == ""
    else:
        rank, _, variable = expected.partition(" (")
        assert f"{rank} processes on this machine ({variable}" in remedy
        assert f"--trainers {expected.split()[3]} " in remedy
