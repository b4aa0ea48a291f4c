"""The rank of a process is found for each launcher, and one process in each pod has none."""

from __future__ import annotations

import json
import sys
from types import SimpleNamespace

import pytest

from distributed_input.api.errors import ConfigError, DatasetFnError, FencedError
from distributed_input.api.proto.trainer_pb2 import Welcome
from distributed_input.trainer import launchers

TORCHRUN = {"RANK": "3", "WORLD_SIZE": "4", "LOCAL_RANK": "1", "LOCAL_WORLD_SIZE": "2"}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "5",
    "OMPI_COMM_WORLD_SIZE": "16",
    "OMPI_COMM_WORLD_LOCAL_RANK": "5",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "8",
}
MPICH = {"PMI_RANK": "2", "PMI_SIZE": "4", "MPI_LOCALRANKID": "0", "MPI_LOCALNRANKS": "2"}
SLURM = {
    "SLURM_PROCID": "7",
    "SLURM_NTASKS": "8",
    "SLURM_LOCALID": "1",
    "SLURM_NTASKS_PER_NODE": "2",
}
CLUSTER = {"chief": ["a:1"], "worker": ["b:1", "c:1"], "ps": ["d:1"]}


def tf_config(kind: str, index: object) -> dict[str, str]:
    return {"TF_CONFIG": json.dumps({"cluster": CLUSTER, "task": {"type": kind, "index": index}})}


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, (3, 4, "RANK and WORLD_SIZE (torchrun)")),
        (OPEN_MPI, (5, 16, "OMPI_COMM_WORLD_RANK and OMPI_COMM_WORLD_SIZE (mpirun)")),
        (MPICH, (2, 4, "PMI_RANK and PMI_SIZE (mpirun)")),
        (SLURM, (7, 8, "SLURM_PROCID and SLURM_NTASKS (srun)")),
        (tf_config("worker", 1), (2, 3, "TF_CONFIG")),
        ({**SLURM, **TORCHRUN, **tf_config("chief", 0)}, (3, 4, "RANK and WORLD_SIZE (torchrun)")),
        # PyTorchJob's operator sets the number of the pod.
        ({"RANK": "1", "WORLD_SIZE": "4"}, None),
        ({**TORCHRUN, "RANK": "1" * 10}, None),
        ({**TORCHRUN, "LOCAL_RANK": ""}, None),
        (tf_config("worker", 2), None),
        (tf_config("ps", 0), None),
        (tf_config("worker", None), None),
        ({"TF_CONFIG": "[]"}, None),
        ({}, None),
    ],
)
def test_a_launcher_sets_the_rank(
    env: dict[str, str], expected: tuple[int, int, str] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(launchers.os, "environ", env)
    found = launchers.rank_of_process()
    assert (None if found is None else (found.index, found.count, found.source)) == expected
    assert found is None or not found.requested


def test_an_initialized_jax_has_the_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SimpleNamespace(client=None, process_id=0, num_processes=1)
    monkeypatch.setattr(launchers.os, "environ", {})
    monkeypatch.setitem(sys.modules, "jax._src.distributed", SimpleNamespace(global_state=state))
    assert launchers.rank_of_process() is None
    state.client, state.process_id, state.num_processes = object(), 1, 2
    found = launchers.rank_of_process()
    assert found is not None
    assert (found.index, found.count, found.source) == (1, 2, "jax.distributed")


def test_a_program_can_request_its_rank() -> None:
    assert launchers.requested_rank(None, None) is None
    found = launchers.requested_rank(1, 2)
    assert found is not None
    assert (found.index, found.count, found.requested) == (1, 2, True)
    for index, count in ((1, None), (None, 2), (2, 2), (-1, 2), (0, 0), (True, 2), (0, 1 << 31)):
        with pytest.raises(ConfigError, match=r"connect\(rank=.*pass both"):
            launchers.requested_rank(index, count)


@pytest.mark.parametrize(
    ("env", "expected"),
    [
        (TORCHRUN, "rank 1 of 2 processes on this machine (LOCAL_RANK)"),
        ({"LOCAL_RANK": "0", "WORLD_SIZE": "2"}, "rank 0 of 2 processes"),
        (OPEN_MPI, "rank 5 of 8 processes on this machine (OMPI_COMM_WORLD_LOCAL_RANK)"),
        (SLURM, "rank 1 of 2 processes on this machine (SLURM_LOCALID)"),
        ({**TORCHRUN, "LOCAL_WORLD_SIZE": "1"}, None),
        ({"RANK": "1", "WORLD_SIZE": "4"}, None),
        ({**TORCHRUN, "LOCAL_RANK": ""}, None),
        ({**SLURM, "SLURM_NTASKS_PER_NODE": "2(x3)"}, None),
        ({}, None),
    ],
)
def test_the_remedy_names_the_rank_and_the_number_of_ranks(
    env: dict[str, str], expected: str | None
) -> None:
    remedy = launchers.remedy(env)
    if expected is None:
        assert remedy == ""
    else:
        assert expected in remedy
        assert f"--ranks-per-trainer {expected.split()[3]} " in remedy


def test_a_fenced_rank_gets_the_advice_for_ranks() -> None:
    fenced = FencedError("it was opened again: a job has one reader. Close the first")
    of_one, of_two = Welcome(ranks=1), Welcome(ranks=2, consumer=3, consumers=4)
    assert launchers.with_remedy(fenced, {}, of_one) is fenced
    assert "has one rank" in str(launchers.with_remedy(fenced, TORCHRUN, of_one))
    assert str(launchers.with_remedy(fenced, TORCHRUN, of_two)) == (
        "it was opened again: a job has one reader. This process is rank 3 of 4. Check that no "
        "other process has the same rank"
    )
    other = DatasetFnError("a. b")
    assert launchers.with_remedy(other, TORCHRUN, of_two) is other


def test_ranks_of_one_group_have_the_same_data_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in TORCHRUN.items():  # rank 3 of 4
        monkeypatch.setenv(name, value)
    rank = launchers.requested_data_rank(1, 2, None)
    assert rank is not None
    assert (rank.index, rank.count, rank.readers, rank.reader) == (1, 2, 2, 3)
    assert (rank.source, rank.requested) == ("connect(data_rank=1, data_size=2)", True)
    other = launchers.requested_data_rank(0, 1, launchers.requested_rank(5, 6))
    assert other is not None
    assert (other.readers, other.reader) == (6, 5)
    assert launchers.requested_data_rank(None, None, other) is other
    with pytest.raises(
        ConfigError,
        match=r"data_size=3\): 4 processes \(RANK .*\) cannot be divided into 3 groups",
    ):
        launchers.requested_data_rank(0, 3, None)


@pytest.mark.parametrize(("index", "count"), [(0, None), (None, 2), (2, 2), (-1, 2), (True, 2)])
def test_a_data_rank_needs_both_numbers(index: int | None, count: int | None) -> None:
    with pytest.raises(ConfigError, match=r"^connect\(data_rank=.*pass both"):
        launchers.requested_data_rank(index, count, launchers.requested_rank(0, 2))


def test_a_data_rank_without_the_number_of_processes_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(launchers, "rank_of_process", lambda: None)
    with pytest.raises(ConfigError, match=r"number of all processes is unknown.* world_size"):
        launchers.requested_data_rank(0, 2, None)
