"""Other projects' real controllers, and a namespace with our definitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from testing.ecosystem.controllers import run_controller
from testing.ecosystem.trainers import (
    run_kuberay,
    run_mpi_operator,
    run_trainer,
    run_training_operator,
)
from testing.operator.cluster import Cluster
from testing.operator.webhooks import Webhook, run_webhook
from tests.operator.conftest import cluster

__all__ = ["cluster"]


@pytest.fixture(scope="session")
def jobset(control_plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run JobSet's controller."""
    with run_controller("jobset", control_plane, tmp_path_factory.mktemp("jobset")):
        yield


@pytest.fixture(scope="session")
def kueue(control_plane, jobset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run Kueue's controller."""
    with run_controller("kueue", control_plane, tmp_path_factory.mktemp("kueue")):
        yield


@pytest.fixture(scope="session")
def pytorch(control_plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run the training operator's controller of PyTorchJobs."""
    with run_training_operator(control_plane, tmp_path_factory.mktemp("pytorch")):
        yield


@pytest.fixture(scope="session")
def mpi(control_plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run the MPI operator's controller."""
    with run_mpi_operator(control_plane, tmp_path_factory.mktemp("mpi")):
        yield


@pytest.fixture(scope="session")
def trainer(control_plane, jobset, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run Kubeflow Trainer's controllers."""
    with run_trainer(control_plane, tmp_path_factory.mktemp("trainer")):
        yield


@pytest.fixture(scope="session")
def lws(control_plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run LeaderWorkerSet's controller."""
    with run_controller("lws", control_plane, tmp_path_factory.mktemp("lws")):
        yield


@pytest.fixture(scope="session")
def kuberay(control_plane, tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Run KubeRay's controllers."""
    with run_kuberay(control_plane, tmp_path_factory.mktemp("kuberay")):
        yield


@pytest.fixture(scope="module")
def hook(
    cluster: Cluster, control_plane, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Webhook]:
    """Run our operator and webhook."""
    folder = tmp_path_factory.mktemp("hook")
    with run_webhook(cluster, control_plane.kubeconfig, folder) as created:
        yield created
